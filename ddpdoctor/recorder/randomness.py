"""The global random streams: where each stands, and which of them move while a training step is made."""

from __future__ import annotations

import ctypes
import random
import struct
import sys
import zlib
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any, TypeAlias

from .digest import is_captured
from .events.training import Drawn, DrawnBetween, Draws
from .patch import guarded
from .session import Session
from .training import TrainingPart
from .where import Where

_Places: TypeAlias = dict[str, tuple[str, str, int]]
"""By stream: the digest of its state, that of the numbers it has made in advance, and how many of them are used."""
_MADE = 624
"""How many numbers a Mersenne Twister makes at once."""
_PYTHON = struct.Struct(f"{_MADE}I")
"""Those of Python's own, as bytes: their text would take four times as long."""
_TORCH_NEXT, _TORCH_MADE = 16, slice(24, 24 + 8 * _MADE)
"""Where torch's CPU state says which of them comes next, and where it has them."""
_DEPTH = 4
"""Attributes between a dataset and a generator that it draws from: ``subset.dataset.transform.parts[0].rng`` is the
farthest."""
_MOST_PARTS = 64
"""Attributes of an object that are looked at."""
_MOST_OBJECTS = 256
"""Objects of a dataset that are looked at, each of them once."""
LOADING = ("torch", "numpy", "python")
"""The streams that loading of samples draws from."""
LOADED = "drawn by loading"
"""What the session shares under this name: what loading the latest batch drew in the main process."""
_STEP = ("torch", "numpy", "cuda")
"""The streams of a training step: Python's own moves by whatever a framework draws, a name or a delay."""
_BETWEEN = (*LOADING, "cuda")
"""The streams of data that no DataLoader gives."""


def states(torch: Any) -> dict[str, str]:
    """Where each stream stands; numpy's only where the script uses numpy."""
    return {name: state for name, (state, _, _) in places(torch, LOADING).items()}


def own_states(torch: Any, dataset: Any) -> dict[str, str]:
    """Where the generators stand that a dataset holds, or the objects that it holds, by ``Dataset.transform.rng``; and
    those among the global variables of their methods."""
    held = {type(dataset).__name__: dataset}
    visited = {id(dataset)}
    generators: dict[str, str] = {}
    for _ in range(_DEPTH):
        parts: dict[str, Any] = {}
        for name, owner in held.items():
            parts |= _generators_used(torch, owner)
            for key, part in _parts(owner):
                if id(part) not in visited and len(visited) < _MOST_OBJECTS:
                    visited.add(id(part))
                    parts[f"{name}.{key}"] = part
        states = {name: _digest(torch, part) for name, part in parts.items()}
        generators |= {name: state for name, state in states.items() if state is not None}
        held = {name: part for name, part in parts.items() if states[name] is None}
    return generators


def _parts(owner: Any) -> list[tuple[str, Any]]:
    try:
        held = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return []
    parts: list[tuple[str, Any]] = []
    for name, part in list(held.items())[:_MOST_PARTS] if type(held) is dict else ():
        elements = part[:_MOST_PARTS] if type(part) in (list, tuple) else ()
        parts += [(f"{name}[{number}]", element) for number, element in enumerate(elements)] or [(name, part)]
    return parts


def _generators_used(torch: Any, owner: Any) -> dict[str, Any]:
    """The global variables that are generators and are named in the methods of an object, those of its class alone."""
    functions = [function for function in vars(type(owner)).values() if type(function) is FunctionType]
    used = [(name, it.__globals__.get(name)) for it in functions for name in it.__code__.co_names]
    return {name: value for name, value in used if _digest(torch, value) is not None}


def _digest(torch: Any, part: Any) -> str | None:
    """Where a generator of numbers stands; None of anything else, and of one on a GPU, which is not waited for."""
    if issubclass(type(part), torch.Generator) and part.device.type != "cpu":
        return None
    state = _state(torch, part)
    return None if state is None else f"{zlib.crc32(state[0]):08x}"


def _state(torch: Any, part: Any) -> tuple[bytes, bytes, int] | None:
    """The state of a generator, read and left as it is, the numbers that it has made in advance, and how many of them
    are used, as far as that is in it; None of anything else, and of one without a state.

    A lazy object makes what it stands for when it is asked for its ``__class__``, as isinstance does.
    """
    kind, numpy = type(part), sys.modules.get("numpy.random")
    if issubclass(kind, random.Random) and not issubclass(kind, random.SystemRandom):
        version, (*made, following), gauss = part.getstate()
        numbers = _PYTHON.pack(*made)
        return numbers + repr((version, following, gauss)).encode(), numbers, following
    if issubclass(kind, torch.Generator):
        tensor = part.get_state()
        state = ctypes.string_at(tensor.data_ptr(), tensor.numel())
        if len(state) <= _TORCH_NEXT:  # a GPU's
            return state, state, 0
        return state, state[_TORCH_MADE], struct.unpack_from("<Q", state, _TORCH_NEXT)[0]
    if numpy is not None and issubclass(kind, numpy.Generator | numpy.RandomState):
        is_new = issubclass(kind, numpy.Generator)
        fields = part.bit_generator.state if is_new else part.get_state(legacy=False)
        inner = fields["state"]
        values = [it for it in (*fields.values(), *inner.values()) if it is not inner]
        arrays = [it.tobytes() for it in values if hasattr(it, "tobytes")]  # printed, they are cut short
        plain = repr([it for it in values if not hasattr(it, "tobytes")]).encode()
        made = inner["key"].tobytes() if "pos" in inner else b""
        return b"".join((*arrays, plain)), made, int(inner.get("pos", 0))
    return None


def places(torch: Any, streams: Iterable[str]) -> _Places:
    """Where these streams stand, as far as there are such; read and left as they are."""
    states = {name: _state(torch, _GENERATORS[name](torch)) for name in streams}
    return {
        name: (f"{zlib.crc32(state[0]):08x}", f"{zlib.crc32(state[1]):08x}", state[2])
        for name, state in states.items()
        if state is not None
    }


def _numpys_own(_: Any) -> Any:
    module = sys.modules.get("numpy.random")
    return None if module is None else module.get_state.__self__


def _of_current_gpu(torch: Any) -> Any:
    cuda = torch.cuda
    if not cuda.is_initialized() or is_captured(torch):
        return None
    return cuda.default_generators[cuda.current_device()]


_GENERATORS: dict[str, Callable[[Any], Any]] = {
    "torch": lambda torch: torch.default_generator,
    "python": lambda _: random.getstate.__self__,  # type: ignore[attr-defined]
    "numpy": _numpys_own,
    "cuda": _of_current_gpu,
}
"""The generator of each global stream."""


def moved(before: _Places, after: _Places) -> dict[str, Draws]:
    """The streams that moved in between, and by how many numbers, as far as that shows."""
    return {
        name: Draws(before[name][0], state, following - before[name][2] if made == before[name][1] else _MADE)
        for name, (state, made, following) in after.items()
        if name in before and before[name][0] != state
    }


class StepDraws(TrainingPart):
    """What a training step draws outside its forwards and in them; looked at in the first steps that have digests, and
    later in few: whether ranks draw alike seldom changes, and to read NumPy's state takes 0.05 ms."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._since: _Places | None = None
        """Where the streams stood when the last look was taken; None where nothing of this step was looked at."""
        self._updated: _Places | None = None
        """Where they stood at the last update; None once a batch or a forward followed."""

    @guarded
    def begin(self) -> None:
        """The loop was given a batch: what is drawn from now on is for the training step."""
        wanted = self.session.detailed and self.training.is_digested
        self._updated = None
        self._since = places(self.torch, _STEP) if wanted else None

    def forget(self) -> None:
        """The same where nothing is looked at."""
        self._since = self._updated = None

    def enter(self, at: Where | None) -> None:
        """A forward begins; where the script takes no batches, what was drawn before may be its data."""
        self.look(at, inside=False)
        if self._since is None:
            self._look_between(at)
            self.begin()

    @guarded
    def look(self, at: Where | None, *, inside: bool, last: bool = False) -> None:
        """Write down what was drawn between the last look and this forward, or inside it, or this update. It is the
        last where the step ends here, and what follows belongs to none until a batch is taken."""
        if self._since is not None:
            now = places(self.torch, _STEP)
            if drawn := moved(self._since, now):
                self.session.event(Drawn(at, inside, drawn))
            self._since = None if last else now
            self._updated = {**now, **places(self.torch, ("python",))} if last else None

    @guarded
    def _look_between(self, at: Where | None) -> None:
        if self._updated is not None and (drawn := moved(self._updated, places(self.torch, _BETWEEN))):
            self.session.event(DrawnBetween(at, tuple(drawn)))
