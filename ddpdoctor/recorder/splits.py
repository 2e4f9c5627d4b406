"""Follows the parts into which a dataset is divided, from where they are made to the loaders that draw from them."""

from __future__ import annotations

import operator
import weakref
from array import array
from collections.abc import Iterator
from typing import Any

from . import contents
from .events.data import Subset
from .guard import guarded
from .lengths import Lengths, is_plain
from .numbers import Numbers
from .session import Session
from .where import Where

_MOST_PARTS = 100
_MOST_SAMPLES = 4_000_000


class Splits:
    """All Subsets of a process."""

    def __init__(self, session: Session, numbers: Numbers, lengths: Lengths) -> None:
        self.session = session
        self.numbers = numbers
        self.lengths = lengths
        self.group: int | None = None
        """The call of random_split that is under way."""
        self._datasets: dict[int, tuple[Any, int]] = {}
        self._parts: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._groups = self._made = 0

    def key(self, dataset: Any) -> int:
        """A number for a dataset, by identity; ids alone are given again when one is gone."""
        reference, serial = self._datasets.get(id(dataset), (None, 0))
        if reference is None or reference() is not dataset:
            serial = len(self._datasets)
            try:
                self._datasets[id(dataset)] = weakref.ref(dataset), serial
            except TypeError:  # a list, for instance
                self._datasets[id(dataset)] = (lambda: dataset), serial
        return serial

    def open_group(self) -> bool:
        """random_split was called."""
        self.group, self._groups = self._groups, self._groups + 1
        return True

    def close_group(self, *_: object) -> None:
        """It is over."""
        self.group = None

    @guarded
    def made(self, subset: Any, at: Where | None) -> None:
        """A Subset was constructed."""
        indices = subset.indices
        if self._made >= _MOST_PARTS or not is_plain(indices) or len(indices) > _MOST_SAMPLES:
            return
        part, self._made = self._made, self._made + 1
        self._parts[subset] = part
        inner, places = contents.innermost(subset, self.session.torch, self.lengths)
        kept = self.numbers.store(array("q", map(operator.index, indices)) if places is None else places)
        whole, samples = self.key(subset.dataset), self.lengths.of(inner)
        self.session.event(Subset(part, whole, samples, kept, self.group, at))

    def of(self, dataset: Any) -> tuple[int, ...]:
        """The parts that a dataset draws from."""
        return tuple(self._parts[layer] for layer in _layers(dataset) if layer in self._parts)


def _layers(dataset: Any) -> Iterator[Any]:
    """A dataset and all that it holds inside."""
    waiting, count = [dataset], 0
    while waiting and count < 50:
        layer, count = waiting.pop(), count + 1
        if hasattr(layer, "__dict__"):
            yield layer
            held = vars(layer)
            waiting += [held[name] for name in ("dataset", "subset") if name in held]
            several = held.get("datasets")
            waiting += several if type(several) in (list, tuple) else ()
