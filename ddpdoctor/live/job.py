"""How a running job is doing, from what its recorded ranks write: nothing is asked of them."""

import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from statistics import median

import psutil

from ddpdoctor.blame.frames import Frame, where_of
from ddpdoctor.job.record_watch import RecordedProcess, Watch
from ddpdoctor.recorder.events.files import Save
from ddpdoctor.text import duration, plural, ranks_phrase, share
from ddpdoctor.trace.drift import Drift, courses_of, drifts_of
from ddpdoctor.trace.stragglers import WORK, work

WINDOW = 30.0
"""Seconds over which rates are taken; a rank whose steps are longer has its last two."""
DRIFT_SECONDS, _DRIFT_PAUSES = 30.0, 500
"""Between two looks at what changed, and how many times as long as one takes of a CPU."""
STILL_SECONDS = 10.0
"""Without progress, after which a rank says so."""
SLOWER, SLOWER_SECONDS = 1.2, 0.002
"""How many times as long a rank works in a step as the median of all, and how much longer, to be called the slowest."""


_PHASES = {"data": "DataLoader", "step": "optimizer.step()", "other": "own code"}
"""How a phase is called where its name does not say it."""


class State(str, Enum):
    RUNS = "runs"
    STILL = "no progress"
    FAILED = "failed"
    ENDED = "ended"


@dataclass(frozen=True)
class LiveRank:
    """One rank at one moment; None where it is not known yet."""

    rank: int
    host: str
    state: State
    steps: int
    """Training steps that it has ended."""
    step_seconds: float | None
    """Of the last half minute, from the end of a step to that of the next."""
    data_share: float | None
    """Of that time, what it waited for batches."""
    wait_share: float | None
    """Of its newest steps that were recorded in full, what it waited for other ranks."""
    work_seconds: float | None
    """Of those steps, its own work in each."""
    busiest: str
    """The phase in which it works longest; empty where that is not known."""
    memory: int | None
    """Bytes resident; None of a rank of another host."""
    at: Frame | None
    """The innermost line of the script's own."""
    still: float
    """Seconds without progress."""


@dataclass(frozen=True)
class LiveJob:
    """All ranks at one moment."""

    ranks: tuple[LiveRank, ...]
    world_size: int
    restarts: int
    save: Save | None
    """The last checkpoint that a rank wrote."""
    save_age: float
    """Seconds since."""
    drifts: tuple[Drift, ...] = ()
    """What changed since the ranks started."""

    @property
    def steps(self) -> int:
        """Training steps that every rank has ended."""
        return min((rank.steps for rank in self.ranks), default=0)

    @property
    def step_seconds(self) -> float | None:
        """Of the median rank."""
        return _median(rank.step_seconds for rank in self.ranks)

    @property
    def ended(self) -> bool:
        """Whether no rank goes on."""
        over = State.ENDED, State.FAILED
        return len(self.ranks) >= self.world_size > 0 and all(rank.state in over for rank in self.ranks)

    @property
    def slowest(self) -> LiveRank | None:
        """The rank that works clearly longer in a step than the others; None where none does."""
        timed = [rank for rank in self.ranks if rank.work_seconds is not None]
        if len(timed) < 2:
            return None
        last = max(timed, key=lambda rank: rank.work_seconds or 0.0)
        usual = median(rank.work_seconds or 0.0 for rank in timed if rank is not last)
        longest = last.work_seconds or 0.0
        return last if longest > max(usual * SLOWER, usual + SLOWER_SECONDS) else None

    def in_order(self) -> list[LiveRank]:
        """The ranks, those first that a reader wants to see: failed, still, behind, slowest; then by their numbers."""
        slowest, most = self.slowest, max((rank.steps for rank in self.ranks), default=0)

        def urgency(rank: LiveRank) -> tuple[bool, bool, bool, bool, int]:
            is_behind = most - rank.steps > 1
            failed, still = rank.state is State.FAILED, rank.state is State.STILL
            return not failed, not still, not is_behind, rank is not slowest, rank.rank

        return sorted(self.ranks, key=urgency)


@dataclass
class _Pace:
    """When a rank was seen to have ended steps: the number of steps, the time, the seconds that it waited for data."""

    seen: deque[tuple[int, float, float]] = field(default_factory=deque)

    def see(self, steps: int, time: float, data: float) -> None:
        if self.seen and steps < self.seen[-1][0]:  # another process has taken the rank
            self.seen.clear()
        if not self.seen or steps > self.seen[-1][0]:
            self.seen.append((steps, time, data))
        while len(self.seen) > 2 and time - self.seen[1][1] > WINDOW:
            self.seen.popleft()

    def rates(self) -> tuple[float | None, float | None]:
        """Seconds a step, and the share of them for data."""
        if len(self.seen) < 2:
            return None, None
        (first, began, before), (last, ended, after) = self.seen[0], self.seen[-1]
        spent = ended - began
        return spent / (last - first), min(1.0, (after - before) / spent) if spent > 0 else None


class LiveRanks:
    """Looks at a job again and again, by a watch of its records, which whoever owns it lets look."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._paces: dict[int, _Pace] = {}
        self._found: tuple[Drift, ...] = ()
        self._due = 0.0

    def now(self) -> LiveJob:
        """The job as the watch saw it last."""
        processes, now = self._watch.ranks(), time.monotonic()
        ranks = tuple(self._rank(rank, process, now) for rank, process in sorted(processes.items()))
        saves = [process.saves[-1] for process in processes.values() if process.saves]
        save = max(saves, key=lambda save: save.span[1], default=None)
        size = max((process.world_size or 0 for process in processes.values()), default=0)
        return LiveJob(
            ranks,
            world_size=size or len(ranks),
            restarts=max((process.restarts for process in processes.values()), default=0),
            save=save,
            save_age=max(0.0, now - save.span[1]) if save else 0.0,
            drifts=self._drifts(processes, now),
        )

    def _drifts(self, processes: Mapping[int, RecordedProcess], now: float) -> tuple[Drift, ...]:
        if now >= self._due:
            began = time.process_time()
            told = {rank: process.told for rank, process in processes.items()}
            saves = {rank: tuple(process.saves) for rank, process in processes.items()}
            self._found = tuple(drifts_of(courses_of(told), told, saves))
            self._due = now + max(DRIFT_SECONDS, _DRIFT_PAUSES * (time.process_time() - began))
        return self._found

    def _rank(self, number: int, process: RecordedProcess, now: float) -> LiveRank:
        beat = process.beat
        pace = self._paces.setdefault(number, _Pace())
        if beat:
            pace.see(beat.steps, beat.time, beat.data_seconds)
        step_seconds, data_share = pace.rates()
        still = max(0.0, now - process.moved) if process.moved else 0.0
        if process.failed or process.ended:
            state = State.FAILED if process.failed else State.ENDED
        else:
            state = State.STILL if still > STILL_SECONDS else State.RUNS
        works = [work(phases) for phases in process.phases]
        typical = {phase: median(step[phase] for step in works) for phase in WORK} if works else {}
        return LiveRank(
            number,
            process.host,
            state,
            beat.steps if beat else 0,
            step_seconds,
            data_share,
            _median(phases.get("waits", 0.0) / phases["total"] for phases in process.phases),
            _median(sum(step.values()) for step in works),
            _PHASES.get(busiest := max(typical, key=typical.__getitem__, default=""), busiest),
            None if process.elsewhere or process.ended else _memory(process.pid),
            beat.at if beat else None,
            still,
        )


def sentence(job: LiveJob) -> str:
    """``step 1,204, 9.8 steps/s, waits 31 %, slowest rank 3 (forward): works 14 ms a step, ...``."""
    if not job.ranks:
        return "no rank has started yet"
    parts = [f"step {job.steps:,}"]
    if seconds := job.step_seconds:
        parts.append(pace(seconds))
    if (waits := _median(rank.wait_share for rank in job.ranks)) is not None:
        parts.append(f"waits {share(waits)}")
    parts += troubles(job)
    return ", ".join(parts)


def pace(seconds: float) -> str:
    """How fast steps come: ``9.8 steps/s``, ``12.1 s a step``."""
    return f"{1 / seconds:.3g} steps/s" if 0 < seconds < 1 else f"{duration(seconds)} a step"


def troubles(job: LiveJob) -> list[str]:
    """What is worth a look, in words."""
    found = []
    for state in (State.FAILED, State.STILL):
        if ranks := [rank for rank in job.ranks if rank.state is state]:
            longest = f" for {min(rank.still for rank in ranks):.0f} s" if state is State.STILL else ""
            found.append(f"{ranks_phrase(rank.rank for rank in ranks)}: {state.value}{longest}")
    if slowest := job.slowest:
        others = _median(rank.work_seconds for rank in job.ranks if rank is not slowest)
        found.append(
            f"slowest rank {slowest.rank} ({slowest.busiest}): works {duration(slowest.work_seconds)} a step, the "
            f"others {duration(others)}"
        )
    if (missing := job.world_size - len(job.ranks)) > 0:
        found.append(f"{plural(missing, 'rank')} of {job.world_size} not seen here")
    found += [drift.sentence for drift in job.drifts]
    if job.restarts:
        found.append(f"restarted {plural(job.restarts, 'time')}")
    return found


def place(rank: LiveRank) -> str:
    """The line at which a rank is: ``train.py:88 in train_step``; of a file elsewhere without its folder."""
    text = "" if rank.at is None else str(where_of(rank.at))
    return text.rpartition("/")[2] if text.startswith("/") else text


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _memory(pid: int) -> int | None:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return None
