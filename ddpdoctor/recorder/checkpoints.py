"""What a checkpoint holds, and which load a state came from."""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .session import Session

_PREFIXES = ("module.", "_orig_mod.")
_MOST_ENTRIES = 200
_MOST_TENSORS = 2000
_MOST_REMEMBERED = 20_000
_DEEPEST = 3
_STATES = {
    "optimizer": {"state", "param_groups"},
    "scheduler": {"_last_lr"},
    "scaler": {"scale", "growth_factor"},
}
"""By what keys a state is known, whatever the checkpoint calls it."""


class Checkpoints:
    """What saving, loading and restoring know together."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.torch = session.torch
        self.saving = 0
        """Calls of torch.save that are under way."""
        self._saves, self._loads = itertools.count(), itertools.count()
        self._tensors: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._plain: dict[int, tuple[Any, int]] = {}

    @classmethod
    def of(cls, session: Session) -> Checkpoints:
        """The session's own."""
        return session.part("checkpoints", cls)

    def next_save(self) -> int:
        """A number for a save."""
        return next(self._saves)

    def next_load(self) -> int:
        """A number for a load."""
        return next(self._loads)

    def describe(self, value: Any) -> dict[str, Any]:
        """The entries of what is saved or was loaded, and the prefix of its parameters."""
        entries = tuple(map(str, list(value)[:_MOST_ENTRIES])) if isinstance(value, Mapping) else ()
        return {"entries": entries, "prefix": self._prefix(value)}

    def _prefix(self, value: Any) -> str | None:
        tensor = self.torch.Tensor
        for mapping in mappings(value):
            names = [
                key for key, entry in mapping.items() if isinstance(entry, tensor) and isinstance(key, str)
            ]
            for prefix in _PREFIXES:
                if names and all(name.startswith(prefix) for name in names):
                    return prefix
        return None

    def numbers(self, value: Any) -> dict[str, float]:
        """The top-level entries that are plain numbers."""
        entries = value.items() if isinstance(value, Mapping) else ()
        plain = {key: n for key, n in entries if isinstance(key, str) and type(n) in (int, float)}
        return dict(list(plain.items())[:_MOST_ENTRIES])

    def states(self, value: Any) -> tuple[str, ...]:
        """Of what kinds it holds the state."""
        held = list(mappings(value))
        return tuple(kind for kind, keys in _STATES.items() if any(keys <= state.keys() for state in held))

    def tensors(self, value: Any) -> list[Any]:
        """The first tensors in it."""
        held = (
            tensor
            for part in mappings(value)
            for tensor in part.values()
            if isinstance(tensor, self.torch.Tensor)
        )
        first = [tensor for _, tensor in zip(range(_MOST_TENSORS), held, strict=False)]
        return [value] if isinstance(value, self.torch.Tensor) else first

    def remember(self, value: Any, load: int) -> None:
        """Know what was loaded again: tensors by identity, mappings without tensors likewise."""
        if len(self._tensors) + len(self._plain) > _MOST_REMEMBERED:
            return
        for tensor in self.tensors(value):
            self._tensors[id(tensor)] = weakref.ref(tensor), load
        for mapping in mappings(value):
            if not any(isinstance(element, self.torch.Tensor) for element in mapping.values()):
                self._plain[id(mapping)] = mapping, load

    def came_from(self, state: Any) -> int | None:
        """The load that a state came from, also where its names were changed since."""
        reference, load = self._plain.get(id(state), (None, None))
        if reference is state:
            return load
        for tensor in self.tensors(state):
            known = self._tensors.get(id(tensor))
            if known is not None and known[0]() is tensor:
                return known[1]
        return None


def mappings(value: Any, depth: int = 0) -> Iterator[Mapping[Any, Any]]:
    """A mapping and the mappings that it holds, not very deep."""
    if isinstance(value, Mapping) and depth < _DEEPEST:
        yield value
        for element in value.values():
            yield from mappings(element, depth + 1)


def path_of(file: Any) -> str:
    """The path that a file argument stands for, absolute and with links resolved; empty for a buffer in memory."""
    name = file if isinstance(file, str | os.PathLike) else getattr(file, "name", "")
    return os.path.realpath(os.fspath(name)) if isinstance(name, str | os.PathLike) and name else ""
