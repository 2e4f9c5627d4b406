"""Tensors that a loss depends on, that take a gradient, and that neither a wrapper nor an optimizer holds.

The script may train them itself. They are known by the variable that holds them.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .digest import is_plain, sample, text, unseen
from .events.schema import Event
from .patch import guarded
from .sites import variables_of
from .training import TrainingPart
from .where import Where

_STEPS = 8
"""Training steps in which they are looked for."""
_MOST_NODES = 3000
_MOST_FRAMES = 64
_MOST = 8


@dataclass(slots=True)
class Leaf(Event):
    """One of them, in the first backward of a training step."""

    step: int
    """The training step, since an optimizer or a wrapper was new."""
    at: Where | None
    """The backward."""
    name: str
    """Its variable, ``self.centers`` for an attribute."""
    shape: tuple[int, ...] = ()
    digest: str | None = None


class Leaves(TrainingPart):
    """Of a process."""

    @guarded
    def look(self, loss: Any, at: Where | None) -> None:
        """The first backward of a training step begins."""
        training, torch = self.training, self.torch
        if training.number >= _STEPS or not training.wrappers or not isinstance(loss, torch.Tensor):
            return
        held = {id(parameter) for parameter in [*training.wrapped(), *training.held()]}
        leaves = [leaf for leaf in _leaves(loss.grad_fn) if id(leaf) not in held and is_plain(torch, leaf)]
        names = self._names({id(leaf) for leaf in leaves}) if leaves else {}
        for leaf in [leaf for leaf in leaves if id(leaf) in names][:_MOST]:
            with unseen(torch):
                digest = text(sample(torch, leaf.detach()))
            told = Leaf(training.number, at, names[id(leaf)], tuple(leaf.shape), digest)
            self.session.event(told)

    def _names(self, wanted: set[int]) -> dict[int, str]:
        """The variables that hold these objects, by the objects' ids; the innermost function's first."""
        names: dict[int, str] = {}
        for frame in self.session.sites.own_frames(sys._getframe(1), _MOST_FRAMES):
            for name, value in variables_of(frame).items():
                attributes = getattr(value, "__dict__", None) if type(value) is not type(sys) else None
                if id(value) in wanted:
                    names.setdefault(id(value), name)
                elif type(attributes) is dict:
                    parts = {**attributes, **(attributes.get("_parameters") or {})}
                    for part in [part for part in parts if id(parts[part]) in wanted]:
                        names.setdefault(id(parts[part]), f"{name}.{part}")
        return names


def _leaves(node: Any) -> Iterator[Any]:
    """The tensors at the ends of a graph, from its nearest ones on."""
    known, waiting = {node}, deque([node])
    while waiting and len(known) < _MOST_NODES:
        current = waiting.popleft()
        if hasattr(current, "variable"):
            yield current.variable
        for above, _ in getattr(current, "next_functions", ()):
            if above is not None and above not in known:
                known.add(above)
                waiting.append(above)
