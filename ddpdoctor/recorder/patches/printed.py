"""Lines that the script prints or logs right after an evaluation: the metrics it announces.

What is printed goes its way unchanged; the line is noted afterwards, and only for a second after a pass that trained
nothing, or after a forward in eval mode.
"""

from __future__ import annotations

import builtins
import logging
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..events.files import Printed
from ..guard import guarded
from ..passes import ENDED_WITHOUT_TRAINING
from ..patch import after_call
from .forward import EVALUATED

if TYPE_CHECKING:
    from ..session import Session

_SECONDS = 1.0
_MOST = 100
_LONGEST = 200
_MOST_ENTRIES = 20
"""Of a dict of metrics."""


def install(session: Session) -> None:
    """Watch print and logging."""
    watch = _Watch(session)
    session.patch(builtins, "print", after_call(watch.look_at_print))
    session.patch(logging.Logger, "handle", after_call(watch.look_at_record))


class _Watch:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.left = _MOST

    def look_at_print(self, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Something was printed."""
        if self.listens() and kwargs.get("file") in (None, sys.stdout, sys.stderr):
            self.tell(lambda: " ".join(self.show(arg) for arg in args), args)

    def look_at_record(self, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Something was logged."""
        if self.listens():
            record = args[1]
            self.tell(record.getMessage, (record.msg, *(record.args if type(record.args) is tuple else ())))

    def listens(self) -> bool:
        """Whether a pass, or a forward in eval mode, ended a moment ago, and nothing was trained since."""
        never, shared = (0.0, -1), self.session.shared
        ended, steps = max(shared.get(ENDED_WITHOUT_TRAINING, never), shared.get(EVALUATED, never))
        return steps == self.session.steps and self.left > 0 and time.monotonic() - ended < _SECONDS

    @guarded
    def tell(self, text: Callable[[], str], parts: Sequence[object]) -> None:
        """Write a line down, with the place that put it together."""
        self.left -= 1
        self.session.event(Printed(time.monotonic(), self.session.here(parts), text()[:_LONGEST]))

    def show(self, value: Any) -> str:
        """A value as print shows it, where asking for its text can do nothing else."""
        if type(value) is dict and len(value) <= _MOST_ENTRIES:
            return ", ".join(f"{self.show(key)}: {self.show(entry)}" for key, entry in value.items())
        plain = isinstance(value, str | int | float | bool | None)
        small = (
            isinstance(value, self.session.torch.Tensor) and value.device.type == "cpu" and value.numel() < 9
        )
        return str(value) if plain or small else f"<{type(value).__name__}>"
