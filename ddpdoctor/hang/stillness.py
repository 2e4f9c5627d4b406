"""Whether a job stands still, works slowly or goes on: from what two or more looks at its processes have in common."""

from __future__ import annotations

from enum import Enum

from ddpdoctor.blame.place import Kind, Place, place_of
from ddpdoctor.blame.standstill import MOST_WAKES, Doing, Process, Role, Standstill

_WORKS = (Doing.COMPUTES, Doing.DISK)


class Stillness(str, Enum):
    """What a job does as a whole."""

    STILL = "still"
    """Every rank stood at one place, and none worked."""
    SLOW = "slow"
    """Some stood at one place, waiting for ranks, while others worked or went on."""
    MOVES = "moves"
    """None waited for another all the time."""


def stillness(standstill: Standstill) -> Stillness:
    """What the ranks on these hosts did between the looks."""
    ranks = [one for one in standstill.processes if one.role is Role.RANK]
    still = [one for one in ranks if is_still(one, _of(one, standstill))]
    if ranks and len(still) == len(ranks):
        return Stillness.STILL
    waiting = [one for one in still if (place := place_of(one)) is not None and place.waits]
    return Stillness.SLOW if waiting else Stillness.MOVES


def is_still(one: Process, workers: tuple[Process, ...] = ()) -> bool:
    """Whether a rank got no further, and nothing that it has started worked for it.

    A rank that is in a collective has come as far as it can, whatever its other threads do, and so has one that looks
    again and again whether the GPU has done its part.
    """
    if one.doing is Doing.GONE:
        return True
    place = place_of(one)
    if place is not None and place.waits:
        return one.stack == one.again and not one.changes and one.wakes <= MOST_WAKES
    return one.stands and not (_needs_workers(place) and any(_works(worker) for worker in workers))


def _needs_workers(place: Place | None) -> bool:
    return place is None or place.kind in (Kind.LOADER, Kind.CHILD, Kind.LOCK, Kind.READ)


def _works(worker: Process) -> bool:
    return worker.doing in _WORKS or worker.changes or worker.stack != worker.again


def _of(rank: Process, standstill: Standstill) -> tuple[Process, ...]:
    return tuple(
        one
        for one in standstill.processes
        if one.role is Role.WORKER and (one.host, one.rank) == (rank.host, rank.rank)
    )
