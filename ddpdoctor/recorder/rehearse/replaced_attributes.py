"""Attributes that the rehearsal replaces, and how each gets back what it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_ABSENT = object()


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

    def on_undo(self, step: Callable[[], None]) -> None:
        """Have this done when everything is undone."""
        self._undo.append(step)

    def undo(self) -> None:
        """Put everything back."""
        while self._undo:
            self._undo.pop()()
