"""Which ranks stand out, and what they have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from types import MappingProxyType
from typing import TypeVar

from ddpdoctor.model import Evidence, Where

_T = TypeVar("_T")


def odd_ranks(values: Mapping[int, Hashable]) -> tuple[int, ...]:
    """The ranks whose value is not the one that most ranks have; rank 0's stands for all where none has a majority."""
    (most, count), *_ = Counter(values.values()).most_common()
    usual = most if count > len(values) / 2 else values[min(values)]
    return tuple(rank for rank, value in values.items() if value != usual)


def by_state(
    states: Mapping[int, _T],
    text: Callable[[_T], str] = str,
    places: Mapping[int, Where | None] = MappingProxyType({}),
) -> tuple[Evidence, ...]:
    """What is so on each rank, equal states once.

    Args:
        text: says what a state is.
        places: where ranks are in it.
    """
    ranks: dict[str, list[int]] = {}
    for rank, state in states.items():
        ranks.setdefault(text(state), []).append(rank)
    return tuple(Evidence(shown, tuple(those), places.get(those[0])) for shown, those in ranks.items())
