"""Attributes that the rehearsal replaces, and how each gets back what it was."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

_ABSENT = object()


def _wrapped(original: Callable[..., Any], replacement: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return replacement(original, *args, **kwargs)

    return wrapped


class Patches:
    """Every replacement made, undone in reverse order."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def set(self, owner: Any, name: str, value: Any) -> Any:
        """Replace an attribute of a module or a class, or add it; answers what it was, or None."""
        before = vars(owner).get(name, _ABSENT)
        setattr(owner, name, value)
        self.on_undo(lambda: delattr(owner, name) if before is _ABSENT else setattr(owner, name, before))
        return None if before is _ABSENT else before

    def add(self, owner: Any, **values: Any) -> None:
        """Replace or add several attributes of one owner."""
        for name, value in values.items():
            self.set(owner, name, value)

    def wrap(self, owner: Any, name: str, replacement: Callable[..., Any], *others: Any) -> None:
        """Have a function call another one, which is given the original before its arguments; others have it, too."""
        wrapped = _wrapped(getattr(owner, name), replacement)
        for place in (owner, *others):
            self.set(place, name, wrapped)

    def on_undo(self, step: Callable[[], None]) -> None:
        """Have this done when everything is undone."""
        self._undo.append(step)

    def undo(self) -> None:
        """Put everything back."""
        while self._undo:
            self._undo.pop()()
