"""Which ranks stand out, and what they have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping

from ddpdoctor.model import Evidence


def odd_ranks(values: Mapping[int, Hashable]) -> tuple[int, ...]:
    """The ranks whose value is not the one that most ranks have; rank 0's stands for all where none has a majority."""
    (most, count), *_ = Counter(values.values()).most_common()
    usual = most if count > len(values) / 2 else values[min(values)]
    return tuple(rank for rank, value in values.items() if value != usual)


def by_state(texts: Mapping[int, str]) -> tuple[Evidence, ...]:
    """What is so on each rank, equal states once."""
    ranks: dict[str, list[int]] = {}
    for rank, text in texts.items():
        ranks.setdefault(text, []).append(rank)
    return tuple(Evidence(text, tuple(those)) for text, those in ranks.items())
