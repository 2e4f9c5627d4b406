"""Whether a job goes on, is slow or hangs. Pure: what its ranks are seen to do over time in, a judgement out.

Progress is what the ranks' own records say. Where they say nothing new, it matters what each rank is seen to do: a
job in which nobody waits for another is not hung, and one in which somebody works will go on. What is left, somebody
who waits and nobody who could come, is a hang after a few seconds. No name of a function has a part in it: a rank
works where its CPU, its disk, its data, its variables or what it has started say so, and where none of them tells,
time does.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from ddpdoctor.blame.hang_snapshot import Doing, HangSnapshot, ProcessRole, SampledProcess
from ddpdoctor.blame.place import Place, PlaceKind, place_of
from ddpdoctor.blame.thresholds import (
    HANG_SECONDS,
    LEAST_TIMEOUT,
    LONGEST_HANG_SECONDS,
    MOST_WAKES,
    OTHER_TIMEOUT,
    PAUSE_FACTOR,
    PAUSE_MEMORY,
    SHORTEST_SLEEP,
    SLEEP_SECONDS,
    START_SECONDS,
    TIMEOUT_SHARE,
)

_WORKING = (Doing.COMPUTES, Doing.DISK)
_OF_OTHERS = (PlaceKind.STORE, PlaceKind.INPUT)
"""What no process of the rank's own brings: another rank does, or a person."""


class RankActivity(str, Enum):
    """What a rank is seen to do."""

    WORKS = "works"
    """It uses its CPU, stands in the queue for one, reads or writes, or what it has started does."""
    WAITS = "waits"
    """For other ranks."""
    SLEEPS = "sleeps"
    BLOCKED = "blocked"
    """In a lock, a pipe, a socket, for a child; or stopped; or it never appeared."""
    LEFT = "left"
    """Its script ended and reported no failure."""


class JobState(str, Enum):
    """What a job does as a whole."""

    MOVES = "moves"
    """No rank waits for another all the time."""
    SLOW = "slow"
    """Some wait for a rank that works, or will wake up."""
    HUNG = "still"
    """No rank works, and so it stays."""


def rank_activity(
    rank: SampledProcess, place: Place | None, workers: Sequence[SampledProcess] = (), backend: str = ""
) -> RankActivity:
    """What a rank did between two looks.

    Args:
        place: where it stands; None where its stack was not seen.
        workers: the processes that it has started.
        backend: of its process group; empty where it is not known.
    """
    if rank.doing in (Doing.GONE, Doing.STOPPED):
        return RankActivity.BLOCKED
    goes_on = rank.changes or rank.stack != rank.again
    wakes = rank.wakes > MOST_WAKES and rank.doing is not Doing.SLEEPS  # a FileStore sleeps between its looks
    if place is not None and place.waits:
        # Threads of NCCL spin while they wait; those of gloo read and write a large tensor, or over a slow network.
        spins = not backend or (backend == "nccl" and place.kind is PlaceKind.COLLECTIVE)
        busy = rank.doing is Doing.DISK or (rank.doing is Doing.COMPUTES and not spins)
        return RankActivity.WORKS if goes_on or wakes or busy else RankActivity.WAITS
    by_others = place is not None and place.kind in _OF_OTHERS
    started = any(it.doing in _WORKING or it.changes or it.stack != it.again for it in workers)
    if goes_on or wakes or rank.doing in _WORKING or (started and not by_others):
        return RankActivity.WORKS
    return RankActivity.SLEEPS if rank.doing is Doing.SLEEPS else RankActivity.BLOCKED


def snapshot_state(snapshot: HangSnapshot) -> JobState:
    """What the ranks on these hosts did between the looks at them."""
    ranks = [process for process in snapshot.processes if process.role is ProcessRole.RANK]
    return job_state([rank_activity(rank, place_of(rank), _workers_of(rank, snapshot)) for rank in ranks])


def _workers_of(rank: SampledProcess, snapshot: HangSnapshot) -> tuple[SampledProcess, ...]:
    return tuple(
        process
        for process in snapshot.processes
        if process.role is ProcessRole.WORKER and (process.host, process.rank) == (rank.host, rank.rank)
    )


def job_state(ranks: Collection[RankActivity]) -> JobState:
    """What a job does at one moment."""
    if ranks and RankActivity.WORKS not in ranks:
        return JobState.HUNG
    return JobState.SLOW if RankActivity.WAITS in ranks else JobState.MOVES


@dataclass(frozen=True)
class Observation:
    """One rank at one moment."""

    activity: RankActivity
    moved: float
    """When its record last said something new."""
    wakes_in: float = 0.0
    """Seconds until a sleep of it, or of the child for which it waits, ends by itself."""
    at_least: float = 0.0
    """Seconds for which it is waited at least, since nobody sees whether what it waits for comes."""
    destroyed_group: bool = False
    """Whether it has destroyed its process group: what it waits for then is no matter of the ranks."""


@dataclass(frozen=True)
class Judgement:
    """What to think of a job."""

    state: JobState
    still: float = 0.0
    """Seconds since the last sign of progress."""
    waiting: tuple[int, ...] = ()
    waited: float = 0.0
    """Seconds that the first of them has waited."""
    others: tuple[int, ...] = ()
    """The ranks that do not wait, and have not left."""
    overdue: bool = False
    """Whether they have waited too long, even for a rank that works."""


class HangDetector:
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
        self._pauses: list[tuple[float, float, bool]] = []
        """Those that ended by themselves and no later one exceeds: when, seconds, and whether every rank waited at each
        look: that a rank was slow to start, or blocked, says nothing of how long all may wait for each other."""
        self._all_waited: set[bool] = set()
        self._since: float | None = None
        """When the last sign of progress was seen."""
        self._known: float | None = None
        self._wakes_at = 0.0

    def look(self, now: float, ranks: Mapping[int, Observation], timeout: float = OTHER_TIMEOUT) -> Judgement:
        """Take another look, ``now`` on the clock of ``moved``; the timeout is the process group's, in seconds."""
        waiting = _with(ranks, RankActivity.WAITS)
        left = _with(ranks, RankActivity.LEFT)
        others = tuple(rank for rank in ranks if rank not in (*waiting, *left))
        blocked = bool(others) and len(others) == len(_with(ranks, RankActivity.BLOCKED))
        blocked = blocked and not all(ranks[rank].destroyed_group for rank in others)
        moved = max((rank.moved for rank in ranks.values()), default=now)
        if _with(ranks, RankActivity.WORKS) or not (waiting or blocked):
            moved = now
        if self._since is None or moved > self._since:
            self._end_pause(moved)
        else:
            self._all_waited.add(len(waiting) == len(ranks))
        still = now - (self._since or 0.0)
        waited = now - min((ranks[rank].moved for rank in waiting), default=now)
        overdue = waited > max(TIMEOUT_SHARE * timeout, min(timeout, LEAST_TIMEOUT))
        if waiting:
            away = [rank for rank in ranks.values() if rank.activity is not RankActivity.WAITS]
            state = JobState.HUNG if overdue else self._state(now, still, away)
        else:
            state = self._alone(still, blocked)
        if state is JobState.HUNG and self._known == self._since:
            state = JobState.SLOW
        return Judgement(state, still, waiting, waited, others, overdue)

    def go_on(self, now: float, *, seen: bool = True) -> None:
        """Take the job for one that works: a closer look has shown it, or nobody could look."""
        self._since = self._since if seen else None
        self._end_pause(now)

    def accept(self) -> None:
        """Take the present hang for known: it is no hang again until there is progress."""
        self._known = self._since

    def _end_pause(self, moved: float) -> None:
        if self._since is not None and self._known != self._since:
            pause = moved, moved - self._since, self._all_waited == {True}
            self._pauses = [it for it in self._pauses if it[1] > pause[1] or it[2] > pause[2]] + [pause]
        self._since, self._all_waited = moved, set()

    def _state(self, now: float, still: float, away: Sequence[Observation]) -> JobState:
        works = any(rank.activity is RankActivity.WORKS for rank in away)
        if works or (self.elsewhere and not away) or now < self._wake_time(now, still, away):
            return JobState.SLOW
        return JobState.HUNG if still >= self._limit(now, away) else JobState.MOVES

    def _wake_time(self, now: float, still: float, away: Sequence[Observation]) -> float:
        """Until when it is known that somebody sleeps who will wake up by itself, and then needs a moment."""
        sleep = max((rank.wakes_in for rank in away), default=0.0)
        if sleep > SHORTEST_SLEEP and still + sleep < SLEEP_SECONDS:
            self._wakes_at = now + sleep + SHORTEST_SLEEP
        return self._wakes_at

    def _limit(self, now: float, away: Sequence[Observation]) -> float:
        """Seconds until a lack of progress is a hang; who has left does not come back."""
        if self._hang_after is not None:
            return self._hang_after
        gone = all(rank.activity is RankActivity.LEFT for rank in away)
        least = self.together if not away else HANG_SECONDS if gone else self._least
        unseen = max((rank.at_least for rank in away), default=0.0)
        alike = (
            seconds
            for ended, seconds, waited in self._pauses
            if away or (waited and now - ended < PAUSE_MEMORY)
        )
        return max(least, unseen, min(PAUSE_FACTOR * max(alike, default=0.0), LONGEST_HANG_SECONDS))

    def _alone(self, still: float, blocked: bool) -> JobState:
        after = START_SECONDS if self._hang_after is None else max(self._hang_after, START_SECONDS)
        return JobState.HUNG if blocked and still >= after else JobState.MOVES


def _with(ranks: Mapping[int, Observation], activity: RankActivity) -> tuple[int, ...]:
    return tuple(number for number, rank in sorted(ranks.items()) if rank.activity is activity)
