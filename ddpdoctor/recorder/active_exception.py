"""The exception that a thread is handling: it stands in an ``except``, a ``finally`` or the end of a ``with``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FunctionType, TracebackType
from typing import Any

from .where import absolute

_LONGEST = 200
"""Characters of its message."""
_MOST_FRAMES = 8


def handled(thread: int, is_foreign: Callable[[str], bool]) -> dict[str, Any] | None:
    """What a thread is handling; None where that is nothing, or no more than the end of an iterator.

    Args:
        thread: its identifier.
        is_foreign: whether a file is not the script's own.
    """
    current = sys._current_exceptions().get(thread)
    error: Any = current[1] if isinstance(current, tuple) else current  # a tuple until Python 3.11
    if not isinstance(error, Exception) or isinstance(error, StopIteration | StopAsyncIteration):
        return None
    trace = error.__traceback__
    if trace is None:
        return None
    holder = trace.tb_frame  # an exception comes no further than to who handles it
    return {
        "type": type(error).__name__,
        "message": _message(error)[:_LONGEST],
        "frames": _own(trace, is_foreign)[-_MOST_FRAMES:],
        "tried": _place(holder.f_code, trace.tb_lineno),
        "holder": _place(holder.f_code, holder.f_lineno),
    }


def _own(trace: TracebackType | None, is_foreign: Callable[[str], bool]) -> list[list[Any]]:
    """The script's own lines through which it came, outermost first."""
    places = []
    while trace is not None:
        code = trace.tb_frame.f_code
        if not is_foreign(code.co_filename):
            places.append(_place(code, trace.tb_lineno))
        trace = trace.tb_next
    return places


def _place(code: CodeType, line: int | None) -> list[Any]:
    return [code.co_name, absolute(code.co_filename), line or code.co_firstlineno]


def _message(error: Exception) -> str:
    """Its first line. A ``__str__`` of the script's own is not for another thread to run."""
    if isinstance(type(error).__str__, FunctionType):
        text = ", ".join(argument for argument in error.args if type(argument) is str)
    else:
        text = str(error)
    return text.strip().partition("\n")[0]
