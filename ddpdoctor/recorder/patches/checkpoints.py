"""Checkpoints: torch.save and torch.load, safetensors' like, and load_state_dict of what a checkpoint restores.

A save is written down before it begins and when it returns, so that a rank that was killed in between shows.
"""

import functools
import itertools
import os
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from ..events.files import Load, Save, StateLoad
from ..patch import Args, Kwargs, watch
from ..session import Part, Session
from ..training import Training, tell_buffers

_PREFIXES = ("module.", "_orig_mod.")
_MOST_ENTRIES = 200
_MOST_TENSORS = 2000
_MOST_REMEMBERED = 20_000
_MOST_NAMES = 2000
_DEEPEST = 3
_STATES = {
    "optimizer": {"state", "param_groups"},
    "scheduler": {"_last_lr"},
    "scaler": {"scale", "growth_factor"},
}
"""By what keys a state is known, whatever the checkpoint calls it."""


def install(session: Session) -> None:
    """Watch saving, loading and restoring."""
    checkpoints = Checkpoints.of(session)
    save = watch(session.torch, checkpoints.begin_save, checkpoints.end_save)
    load, load_file = (
        watch(session.torch, functools.partial(checkpoints.begin_load, place), checkpoints.end_load)
        for place in ("map_location", "device")
    )
    session.patch_function(("torch.serialization", "torch"), "save", save)
    session.patch_function(("torch.serialization", "torch"), "load", load)
    session.patch_later("safetensors.torch", "save_file", save)
    session.patch_later("safetensors.torch", "load_file", load_file)
    for kind, owner in _owners(session.torch):
        end = functools.partial(checkpoints.end_state, kind)
        session.patch(owner, "load_state_dict", watch(session.torch, checkpoints.begin_state, end))


def _owners(torch: Any) -> Iterable[tuple[str, Any]]:
    """Those classes that define load_state_dict themselves."""
    yield "module", torch.nn.Module
    yield "optimizer", torch.optim.Optimizer
    yield "scaler", torch.amp.GradScaler
    for var in vars(torch.optim.lr_scheduler).values():
        if isinstance(var, type) and "load_state_dict" in vars(var):
            yield "scheduler", var


class Checkpoints(Part):
    """What saving, loading and restoring know together."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.saving = 0
        """Calls of torch.save that are under way."""
        self.restoring = 0
        """Calls of load_state_dict: one that holds others, a SequentialLR for instance, counts once."""
        self._saves, self._loads = itertools.count(), itertools.count()
        self._tensors: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._plain: dict[int, tuple[Any, int]] = {}

    def begin_save(self, args: Args, kwargs: Kwargs) -> Save:
        value, file = [*args, *kwargs.values()][:2]
        at = self.session.here()
        tell_buffers(self.session, "save", at=at)
        save = Save(_path_of(file), at, time.monotonic(), id=next(self._saves))
        self._describe(save, value)
        self.session.event(save, now=True)
        self.saving += 1
        return save

    def end_save(self, save: Save, _: Any, error: BaseException | None) -> None:
        self.saving -= 1
        if error is None:
            save.end = time.monotonic()
            with suppress(OSError):
                save.size = os.stat(save.path).st_size
            self.session.event(save, now=True)

    def begin_load(self, place: str, args: Args, kwargs: Kwargs) -> Load:
        """torch.load is about to be entered; its second argument, of this name, says where tensors are to lie."""
        where = args[1] if len(args) > 1 else kwargs.get(place)
        shown = None if where is None else "function" if callable(where) else str(where)
        path = _path_of(args[0] if args else next(iter(kwargs.values())))
        load = Load(path, self.session.here(), time.monotonic(), map_location=shown, id=next(self._loads))
        self.session.event(load, now=True)
        return load

    def end_load(self, load: Load, result: Any, error: BaseException | None) -> None:
        load.end = time.monotonic()
        if error is None:
            self._describe(load, result)
            load.devices = tuple(sorted({str(tensor.device) for tensor in self._tensors_in(result)}))
            self._remember(result, load.id)
        else:
            load.error = f"{type(error).__name__}: {error}"[:2000]
        self.session.event(load, now=error is not None)

    def begin_state(self, args: Args, kwargs: Kwargs) -> tuple[Any, Any, bool]:
        given = dict(zip(("self", "state_dict", "strict"), args, strict=False)) | kwargs
        begun = given["self"], given["state_dict"], bool(given.get("strict", True))
        self.restoring += 1
        return begun

    def end_state(self, kind: str, begun: Any, result: Any, error: BaseException | None) -> None:
        """It returned, or raised: what it took, and what it left out."""
        self.restoring -= 1
        if self.restoring:
            return
        owner, state, strict = begun
        missing, unexpected = _left_out(kind, owner, state, result)
        entries = state.get("state", state) if kind == "optimizer" else state
        event = StateLoad(
            kind,
            type(owner).__name__,
            self.session.here(),
            time.monotonic(),
            strict,
            matched=0 if error else len(entries) - len(unexpected),
            missing=tuple(missing[:_MOST_NAMES]),
            unexpected=tuple(unexpected[:_MOST_NAMES]),
            wrapper=self._wrapper(owner) if kind == "module" else None,
            load=self._came_from(state),
            error=None if error is None else f"{type(error).__name__}: {error}"[:2000],
        )
        self.session.event(event)

    def _wrapper(self, module: Any) -> int | None:
        for wrapper, ddp in Training.of(self.session).living():
            if any(part is module for part in ddp.modules()):
                return wrapper.index
        return None

    def _describe(self, event: Save | Load, value: Any) -> None:
        """The entries of what is saved or was loaded, those that are plain numbers, what states it holds."""
        items = list(value.items()) if isinstance(value, Mapping) else []
        event.entries = tuple(str(key) for key, _ in items[:_MOST_ENTRIES])
        plain = [(key, entry) for key, entry in items if isinstance(key, str) and type(entry) in (int, float)]
        event.numbers = dict(plain[:_MOST_ENTRIES])
        held = list(_mappings(value))
        event.prefix = next(filter(None, map(self._prefix, held)), None)
        event.states = tuple(kind for kind, keys in _STATES.items() if any(keys <= it.keys() for it in held))

    def _prefix(self, mapping: Mapping[Any, Any]) -> str | None:
        """What the names of all parameters in it begin with."""
        entries = mapping.items()
        names = [it for it, value in entries if isinstance(it, str) and isinstance(value, self.torch.Tensor)]
        return next((it for it in _PREFIXES if names and all(name.startswith(it) for name in names)), None)

    def _tensors_in(self, value: Any) -> list[Any]:
        """The first tensors in it."""
        held = (part for mapping in _mappings(value) for part in mapping.values())
        tensors = (part for part in held if isinstance(part, self.torch.Tensor))
        return (
            [value] if isinstance(value, self.torch.Tensor) else [*itertools.islice(tensors, _MOST_TENSORS)]
        )

    def _remember(self, value: Any, load: int) -> None:
        """Know what was loaded again: tensors by identity, mappings without tensors likewise."""
        if len(self._tensors) + len(self._plain) > _MOST_REMEMBERED:
            return
        for tensor in self._tensors_in(value):
            self._tensors[id(tensor)] = weakref.ref(tensor), load
        for mapping in _mappings(value):
            if not any(isinstance(element, self.torch.Tensor) for element in mapping.values()):
                self._plain[id(mapping)] = mapping, load

    def _came_from(self, state: Any) -> int | None:
        """The load that a state came from, also where its names were changed since."""
        reference, load = self._plain.get(id(state), (None, None))
        if reference is state:
            return load
        for tensor in self._tensors_in(state):
            if (known := self._tensors.get(id(tensor))) is not None and known[0]() is tensor:
                return known[1]
        return None


def _mappings(value: Any, depth: int = 0) -> Iterator[Mapping[Any, Any]]:
    """A mapping and the mappings that it holds, not very deep."""
    if isinstance(value, Mapping) and depth < _DEEPEST:
        yield value
        for element in value.values():
            yield from _mappings(element, depth + 1)


def _path_of(file: Any) -> str:
    """The path that a file argument stands for, absolute and with links resolved; empty for a buffer in memory."""
    name = file if isinstance(file, str | os.PathLike) else getattr(file, "name", "")
    return os.path.realpath(os.fspath(name)) if isinstance(name, str | os.PathLike) and name else ""


def _left_out(kind: str, owner: Any, state: Any, result: Any) -> tuple[list[str], list[str]]:
    """The missing and the unexpected keys."""
    if kind != "module" or not isinstance(state, Mapping):
        return [], []
    if hasattr(result, "missing_keys"):
        return list(result.missing_keys), list(result.unexpected_keys)
    # It raised. Not by state_dict(), whose hooks are the script's.
    parameters = [name for name, _ in owner.named_parameters(remove_duplicate=False)]
    buffers = [name for name, _ in owner.named_buffers(remove_duplicate=False)]
    missing = [name for name in (*parameters, *buffers) if name not in state]
    return missing, [key for key in state if key not in {*parameters, *buffers}]
