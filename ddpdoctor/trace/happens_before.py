"""What is bound to happen before what on another rank: moments that no rank passes before all have come to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping

from ddpdoctor.recorder.operations import Kind, kind_of
from ddpdoctor.trace.recording import Recording


class HappensBefore:
    """The order that collectives, updates and wrappers force upon the ranks of one run."""

    def __init__(self, recordings: Mapping[int, Recording]) -> None:
        self._moments = {rank: dict(_moments(recording)) for rank, recording in recordings.items()}

    def is_forced(self, first: int, ended: float, second: int, begins: float) -> bool:
        """Whether what rank ``first`` did until ``ended`` had to be over when rank ``second`` went on at ``begins``.

        That one came later by the clock proves nothing: another day it may not.
        """
        if first == second:
            return ended <= begins
        met = self._moments.get(second, {})
        return any(
            came >= ended and (source is None or source == first) and key in met and met[key][0] < begins
            for key, (came, source) in self._moments.get(first, {}).items()
        )

    def may_overlap(
        self, first: int, span: tuple[float, float], second: int, other: tuple[float, float]
    ) -> bool:
        """Whether nothing forces one of two spans of time, one on each rank, to be over before the other."""
        return not (
            self.is_forced(first, span[1], second, other[0])
            or self.is_forced(second, other[1], first, span[0])
        )


def _moments(recording: Recording) -> Iterator[tuple[Hashable, tuple[float, int | None]]]:
    """Each moment by a key that all ranks share: when this rank came, and the one rank that others wait for.

    Numbers count the calls of a group, of which every member makes the same.
    """
    calls = [call for call in recording.collectives if kind_of(call.operation) is not Kind.PAIR]
    places: Counter[tuple[int, ...] | None] = Counter()
    for call in calls:
        number = places[call.group] if call.number is None else call.number
        places[call.group] += 1
        key = ("collective", call.group, number, call.operation)
        if kind_of(call.operation) is Kind.ALL:
            yield key, (call.time, None)
        elif kind_of(call.operation) is Kind.FROM_ONE and call.peer is not None:
            yield key, (call.time, call.peer)
    for step in recording.steps:
        for backward in step.backwards:
            if backward.reduced:
                yield ("step", step.index), (backward.time, None)
    for wrapper in recording.wrappers:
        yield ("wrapper", wrapper.index), (wrapper.time, None)
    for number, event in enumerate(recording.group_events("init")):
        yield ("group", number), (event.time, None)
