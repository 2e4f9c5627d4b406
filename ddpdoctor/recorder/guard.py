"""Keeps what goes wrong inside the recorder inside the recorder. One of the two places for a broad except."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_listeners: list[Callable[[str, str], None]] = []
_reported: set[str] = set()


def on_fault(listener: Callable[[str, str], None]) -> None:
    """Have faults told to this function, as topic and text."""
    _listeners[:] = [listener]


def guarded(function: Callable[P, R]) -> Callable[P, R | None]:
    """Run a function of ours in the user's process: an exception in it is noted once and None returned.

    The user's own call never stands inside: its exceptions are not ours to catch.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return function(*args, **kwargs)
        except Exception:  # noqa: BLE001 - a fault of ours costs a note, never the run
            report(name_of(function))
            return None

    return call


@guarded
def nothing() -> None:
    """Shares its code with every guarded function."""


def name_of(function: Callable[..., Any]) -> str:
    """What a fault in a function is told under."""
    inner = getattr(function, "func", function)  # of a partial
    return getattr(inner, "__qualname__", None) or str(inner)


def report(topic: str) -> None:
    """Note the exception that is being handled, once for each topic."""
    if topic in _reported:
        return
    _reported.add(topic)
    text = traceback.format_exc(limit=-3)
    for listener in _listeners:
        _tell(listener, topic, text)


def _tell(listener: Callable[[str, str], Any], topic: str, text: str) -> None:
    try:
        listener(topic, text)
    except Exception:  # noqa: BLE001 - the disk may be full: then there is nobody left to tell
        pass
