"""Numbers that the script's functions hold where a training step begins: counts, losses, what a loop may end by.

Read by name from the frames that lead to the forward of a wrapper, in few training steps, and left as they are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FrameType, FunctionType, ModuleType
from typing import Any

from .digest import is_plain, unseen
from .events.schema import Event
from .patch import guarded
from .session import Session
from .sites import variables_of
from .training import TrainingPart
from .where import Where

_MOST_FRAMES = 64
_MOST_NUMBERS = 200
"""Of a frame; more are told of none."""
_WITHOUT_NUMBERS = {
    *(str, bytes, list, tuple, dict, set, type),
    *(ModuleType, FunctionType, BuiltinFunctionType),
}
"""What most variables of a script are: passed over at once."""


@dataclass(slots=True)
class LoopNumbers(Event):
    """Numbers that a function of the script held when a training step began."""

    wrappers: int
    """How many had been constructed."""
    step: int
    """The training step, since an optimizer or a wrapper was new."""
    at: Where | None
    """Where the function stood."""
    values: Mapping[str, float | None] = field(default_factory=dict)
    """By name, ``stopper.best`` for an attribute; those that were not told before, or others then."""


class Watched(TrainingPart):
    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._looked = (0, -1)
        self._told: dict[Any, dict[str, float | None]] = {}

    @guarded
    def look(self) -> None:
        training = self.training
        now = len(training.wrappers), training.number
        if now == self._looked or not training.is_digested or sys.gettrace() is not None:
            return
        self._looked = now
        for frame in self.session.sites.own_frames(sys._getframe(1), _MOST_FRAMES):
            site = self.session.sites.site(frame.f_code, frame.f_lineno, frame.f_lasti)
            numbers = dict(self._numbers(frame))
            recorded = self._told.setdefault(frame.f_code, {})
            values = {name: value for name, value in numbers.items() if recorded.get(name, "") != value}
            recorded.update(values)
            if 0 < len(numbers) <= _MOST_NUMBERS:
                self.session.event(LoopNumbers(*now, site, values))

    def _numbers(self, frame: FrameType) -> Iterator[tuple[str, float | None]]:
        for name, value in variables_of(frame).items():
            yield from self._of_variable(name, value)

    def _of_variable(self, name: str, value: Any) -> Iterator[tuple[str, float | None]]:
        if type(value) in _WITHOUT_NUMBERS or name.startswith("__"):
            return
        if self._is_number(value):
            yield name, self._number(value)
            return
        for attribute, part in _attributes(self.session, value).items():
            if self._is_number(part):
                yield f"{name}.{attribute}", self._number(part)

    def _is_number(self, value: Any) -> bool:
        if value is None or type(value) in (bool, int, float):
            return True
        kind = type(value)
        if getattr(kind, "__module__", "") == "numpy" and getattr(value, "ndim", 1) == 0:
            return kind.__name__.startswith(("float", "int", "bool"))
        return kind is self.torch.Tensor and value.numel() == 1 and self._is_at_hand(value)

    def _is_at_hand(self, tensor: Any) -> bool:
        """Whether it can be read without waiting for a device."""
        near = tensor.device.type == "cpu" or self.session.options.rehearse
        return near and is_plain(self.torch, tensor) and not tensor.is_complex()

    def _number(self, value: Any) -> float | None:
        if value is None:
            return None
        with unseen(self.torch):
            return float(value.detach().item() if isinstance(value, self.torch.Tensor) else value)


def _attributes(session: Session, value: Any) -> Mapping[str, Any]:
    """The variables of an object of a class that the script wrote, or of a namespace of settings."""
    kind = type(value)
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None)
    settings = kind.__name__ in ("Namespace", "SimpleNamespace")
    if not settings and (not isinstance(file, str) or session.sites.is_foreign(file)):
        return {}
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return dict(held) if type(held) is dict else {}
