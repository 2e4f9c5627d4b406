"""What ranks draw from a dataset, as plain lists of indices and counts: overlap, also by chance."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import comb, sqrt

_FEWEST_LOOKED_AT = 8
"""Samples of a rank."""
_FEWEST_SHARED = 4
"""Samples that two ranks have, from which it is no accident."""
_DEVIATIONS = 3
"""Standard deviations by which chance may exceed the mean."""


@dataclass(frozen=True)
class Overlap:
    """Samples that ranks share although one dataset was divided among them."""

    shared: tuple[int, ...]
    """Samples that more than one rank draws."""
    never: int | None
    """Samples of the dataset that nobody draws; None where not every rank is known."""


def overlap(shards: Mapping[int, Sequence[int]], samples: int, ranks: int) -> Overlap | None:
    """What ranks draw twice of a dataset that they divide; None where they divide it, or are not meant to.

    Ranks whose shards are not known draw as many as the others. Draws beyond the number of samples are padding. Not
    meant to divide are shards that repeat samples in themselves (drawn with replacement), in which each sample is drawn
    equally often (repeated augmentation), or that all together are far more or fewer than the samples there are.
    """
    total = sum(map(len, shards.values())) * ranks // len(shards)
    padding = max(0, total - samples)
    if any(len(set(shard)) + padding < len(shard) for shard in shards.values()):
        return None
    ranks_of = Counter(index for shard in shards.values() for index in set(shard))
    surplus = sum(ranks_of.values()) - len(ranks_of)
    if surplus <= padding or abs(total - samples) > samples // 10 + ranks:
        return None
    often = Counter(ranks_of.values())
    if min(often) > 1 and max(often.values()) + padding >= len(ranks_of):
        return None
    shared = tuple(sorted(index for index, count in ranks_of.items() if count > 1))
    never = max(0, samples - len(ranks_of)) if ranks == len(shards) else None
    return Overlap(shared, never)


def shared_by_chance(
    samples: Mapping[int, Sequence[Hashable]], lengths: Mapping[int, int], ranks: int
) -> set[Hashable]:
    """The samples that several ranks have, where each drew its part out of an order of its own; none where the samples
    do not look so.

    The samples are what each known rank drew first of its part, in random order, by content; parts of ranks that are
    not known are as long as the others'. Two ranks that drew ``a`` and ``b`` samples of ``n`` each by itself share
    ``a * b / n`` by chance; parts of one order share none, whether it was shuffled or not. Samples that the data
    repeats turn up on one rank as well as on two, and what is given to all on purpose is shared by more than chance.
    """
    counts = [len(drawn) for drawn in samples.values()]
    total = sum(lengths.values()) * ranks // len(lengths)
    even = max(lengths.values()) - min(lengths.values()) <= ranks
    if not even or min(counts) < _FEWEST_LOOKED_AT or total <= sum(lengths.values()) // len(lengths):
        return set()
    ranks_of = Counter(sample for drawn in samples.values() for sample in set(drawn))
    if sum(ranks_of.values()) < sum(counts):
        return set()
    pairs = sum(comb(count, 2) for count in ranks_of.values())
    mean = (sum(counts) ** 2 - sum(count**2 for count in counts)) / 2 / total
    part = sum(counts) / len(counts) / total
    deviation = sqrt(mean) * (1 - part)
    if not max(_FEWEST_SHARED, mean / 2) <= pairs <= mean + _DEVIATIONS * deviation:
        return set()
    return {sample for sample, count in ranks_of.items() if count > 1}
