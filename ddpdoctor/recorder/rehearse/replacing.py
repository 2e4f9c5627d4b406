"""How the rehearsal replaces attributes, calls what the script asked of torch, and refuses what GPUs refuse.

An exception that came through :func:`plain` or :func:`refuse` is what the script would see on GPUs. Any other exception
that begins in this folder is the rehearsal's own fault (``is_own_fault``).
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from ..patch import Replaced
from ..where import Where

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_GLOO_LACKS = re.compile(
    r"^Invalid scalar type|^Cannot use ReduceOp\.\w+ with Gloo|Backend gloo does not (?:implement|support)"
    r"|ProcessGroupGloo\S* (?:does not support|only supports|requires .{0,60} to be supported)"
    r"|No backend type associated with device type cuda"
)
"""What gloo says of calls that NCCL takes."""
Note = Callable[[str, str], None]
"""What tells, by topic and text, what the rehearsal cannot do faithfully, once each."""


class Patches(Replaced):
    """Every replacement made, undone in reverse order."""

    def add(self, owner: Any, **values: Any) -> None:
        """Replace or add several attributes of one owner."""
        for name, value in values.items():
            self.set(owner, name, value)

    def wrap(self, owner: Any, name: str, replacement: Callable[..., Any], *others: Any) -> None:
        """Have a function call another one, which is given the original before its arguments; others have it, too."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return replacement(original, *args, **kwargs)

        for place in (owner, *others):
            self.set(place, name, wrapped)


def plain(
    function: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
) -> Any:
    """Call what the script asked for."""
    return function(*args, **(kwargs or {}))


def refuse(error: Exception) -> NoReturn:
    """Raise what the script would get on GPUs."""
    raise error


def is_own_fault(message: str, frames: Sequence[Where], is_foreign: Callable[[str], bool]) -> bool:
    """Whether an exception, by its message and its traceback, outermost first, is the rehearsal's: raised by its own
    code, or by gloo for a call that NCCL takes."""
    if _GLOO_LACKS.search(message):
        return True
    ours = [position for position, frame in enumerate(frames) if frame.file.startswith(_HERE)]
    if not ours or frames[ours[-1]].function in (plain.__name__, refuse.__name__):
        return False
    return all(is_foreign(frame.file) for frame in frames[ours[-1] :])
