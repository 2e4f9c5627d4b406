"""When a job that makes no progress has stopped, and when it is only slow. Pure: facts over time in, an opinion out.

Progress is what the ranks' own records say. Where they say nothing new, it matters what each rank is seen to do: a
job in which nobody waits for another is not hung, and one in which somebody works will go on. What is left, somebody
who waits and nobody who could come, is a hang after a few seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

HANG_SECONDS = 5.0
"""Without a sign of progress while somebody waits and nobody works."""
FIRST_SECONDS = {"nccl": 60.0}
"""Where every rank waits, by the backend: NCCL sets up its connections in the first collective, for which a large job
needs many seconds, and its threads spin whether data flow or not."""
LONGEST_HANG_SECONDS = 60.0
"""The most that pauses of this very run make of it."""
_TIMES = 3.0
"""As many times the longest pause that ended by itself."""
SLEEP_SECONDS = 60.0
"""For a rank that sleeps and will wake up by itself."""
_SHORTEST_SLEEP = 1.0
"""A shorter one is a turn of a loop that looks again and again."""
START_SECONDS = 60.0
"""Where every rank is blocked and none waits for another: a lock, or data that are mounted, may still come."""
TIMEOUTS = {"nccl": 600.0}
OTHER_TIMEOUT = 1800.0
"""Of a process group, where the script gives none."""
_TIMEOUT_SHARE = 0.5
"""Of it, that the others wait for a rank that works."""
_LEAST_TIMEOUT = 60.0
"""Seconds; a shorter timeout comes soon enough, and says itself who waited."""


class Stand(str, Enum):
    """What a rank is seen to do while its record says nothing new."""

    WORKS = "works"
    """It uses its CPU, stands in the queue for one or waits for its disk, or does what takes its time."""
    WAITS = "waits"
    """For other ranks."""
    SLEEPS = "sleeps"
    BLOCKED = "blocked"
    """In a lock, a pipe, a socket, for a child; or stopped; or it never appeared."""
    LEFT = "left"
    """Its script ended and reported no failure."""


@dataclass(frozen=True)
class Sight:
    """One rank at one look."""

    stand: Stand
    moved: float
    """When its record last said something new."""
    wakes_in: float = 0.0
    """Seconds until a sleep of it ends by itself."""


class State(str, Enum):
    """Of a job."""

    FINE = "fine"
    SLOW = "slow"
    """Somebody waits for a rank that works, or will wake up."""
    HUNG = "hung"


@dataclass(frozen=True)
class Opinion:
    """What to think of a job."""

    state: State
    still: float = 0.0
    """Seconds since the last sign of progress."""
    waiting: tuple[int, ...] = ()
    waited: float = 0.0
    """Seconds that the first of them has waited."""
    others: tuple[int, ...] = ()
    """The ranks that do not wait, and have not left."""


class Patience:
    """Follows one job.

    Args:
        hang_after: seconds after which a job that stands still has stopped; None to learn it from its pauses.
        elsewhere: whether some of its ranks are on other hosts, where nobody can see what they do.
        least: seconds that are waited at least for a rank that is blocked or sleeps, and could come back.

    Attributes:
        together: seconds that are waited at least where every rank waits.
    """

    def __init__(
        self, hang_after: float | None = None, *, elsewhere: bool = False, least: float = HANG_SECONDS
    ) -> None:
        self.elsewhere = elsewhere
        self.together = HANG_SECONDS
        self._hang_after = hang_after
        self._least = least
        self._longest = 0.0
        self._since: float | None = None
        """When the last sign of progress was seen."""
        self._known: float | None = None
        self._wakes_at = 0.0

    def look(self, now: float, sights: Mapping[int, Sight], timeout: float = OTHER_TIMEOUT) -> Opinion:
        """Take another look.

        Args:
            now: on the clock of ``moved``.
            timeout: of the process group, in seconds.
        """
        waiting = _with(sights, Stand.WAITS)
        others = tuple(r for r, one in sights.items() if one.stand not in (Stand.WAITS, Stand.LEFT))
        moved = max((one.moved for one in sights.values()), default=now)
        works = any(one.stand is Stand.WORKS for one in sights.values())
        blocked = bool(others) and len(others) == len(_with(sights, Stand.BLOCKED))
        if works or not (waiting or blocked):
            moved = now
        if self._since is None or moved > self._since:
            self._end_pause(moved)
        still = now - (self._since or 0.0)
        waited = now - min((sights[rank].moved for rank in waiting), default=now)
        state = self._state(now, still, waited, sights, timeout) if waiting else self._alone(still, blocked)
        if state is State.HUNG and self._known == self._since:
            state = State.SLOW
        return Opinion(state, still, waiting, waited, others)

    def go_on(self) -> None:
        """Take the present standstill for known: it is no hang again until there is progress."""
        self._known = self._since

    def _end_pause(self, moved: float) -> None:
        if self._since is not None and self._known != self._since:
            self._longest = max(self._longest, moved - self._since)
        self._since = moved

    def _state(
        self, now: float, still: float, waited: float, sights: Mapping[int, Sight], timeout: float
    ) -> State:
        if waited > max(_TIMEOUT_SHARE * timeout, min(timeout, _LEAST_TIMEOUT)):
            return State.HUNG
        away = [one for one in sights.values() if one.stand is not Stand.WAITS]
        if any(one.stand is Stand.WORKS for one in away) or (self.elsewhere and not away):
            return State.SLOW
        if self._hang_after is None and now < self._wake_time(now, still, away):
            return State.SLOW
        return State.HUNG if still >= self._limit(away) else State.FINE

    def _wake_time(self, now: float, still: float, away: Sequence[Sight]) -> float:
        """Until when it is known that somebody sleeps who will wake up by itself, and then needs a moment."""
        sleep = max((one.wakes_in for one in away if one.stand is Stand.SLEEPS), default=0.0)
        if sleep > _SHORTEST_SLEEP and still + sleep < SLEEP_SECONDS:
            self._wakes_at = now + sleep + _SHORTEST_SLEEP
        return self._wakes_at

    def _limit(self, away: Sequence[Sight]) -> float:
        """Seconds until a standstill is a hang; who has left does not come back."""
        if self._hang_after is not None:
            return self._hang_after
        gone = all(one.stand is Stand.LEFT for one in away)
        least = self.together if not away else HANG_SECONDS if gone else self._least
        return max(least, min(_TIMES * self._longest, LONGEST_HANG_SECONDS))

    def _alone(self, still: float, blocked: bool) -> State:
        after = START_SECONDS if self._hang_after is None else max(self._hang_after, START_SECONDS)
        return State.HUNG if blocked and still >= after else State.FINE


def _with(sights: Mapping[int, Sight], stand: Stand) -> tuple[int, ...]:
    return tuple(rank for rank, one in sorted(sights.items()) if one.stand is stand)
