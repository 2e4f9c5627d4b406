"""Numbers that an all_reduce has summed over the ranks."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ddpdoctor.recorder.events.training import Collective

_NEAR = 1e-3
"""How far a sum may be from that of what was given, relative to it, in few bits."""


@dataclass(frozen=True)
class Total:
    """A number of each rank, and their sum."""

    call: Collective
    given: Mapping[int, float]
    total: float


def summed_over_ranks(calls: Mapping[int, Sequence[Collective]]) -> Iterator[Total]:
    """What ranks have summed up, by the collectives of each that are to be looked at."""
    told = {rank: [call for call in own if call.got] for rank, own in calls.items()}
    for row in zip(*told.values(), strict=False):
        alike = len({(call.at, len(call.given), len(call.got)) for call in row}) == 1
        for position, total in enumerate(row[0].got if alike else ()):
            given = {rank: call.given[position] for rank, call in zip(told, row, strict=True)}
            if total and math.isclose(math.fsum(given.values()), total, rel_tol=_NEAR):
                yield Total(row[0], given, total)
