"""What each rank of a running job does: by its record, and where that says nothing new by /proc."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import psutil

from ddpdoctor.blame.frames import of_script, where_of
from ddpdoctor.blame.hang_snapshot import Doing, ProcessRole, SampledProcess
from ddpdoctor.blame.liveness import Observation, RankActivity, rank_activity
from ddpdoctor.blame.place import Place, PlaceKind, place_of
from ddpdoctor.blame.thresholds import (
    BUSY_SHARE,
    FLOW_WAKES,
    FRESH_SECONDS,
    LITTLE_SHARE,
    OUTSIDE_SECONDS,
    QUIET_SECONDS,
    SHARED_DISK_SECONDS,
)
from ddpdoctor.hang.heartbeats import recorders_threads
from ddpdoctor.hang.jobs import number_in
from ddpdoctor.host.activity import Observer
from ddpdoctor.host.proc import connected_outside, descendants, is_gone
from ddpdoctor.host.system_calls import SystemCall
from ddpdoctor.job import record_watch
from ddpdoctor.program.polls import Poll, poll_of


class RankObserver:
    """Observes the ranks of a job, which descends from one process, ``guard``; our recorder writes to ``records``."""

    def __init__(self, guard: int, records: Path | None = None) -> None:
        self._guard, self._records = guard, records
        self._observer = Observer()
        self._children: dict[int, list[int]] = {}
        self._outside: set[int] = set()
        """The processes that wait for a server, or for a client, that is no process of the job."""
        self.unrecorded: dict[int, int] = {}
        """Ranks whose process has not recorded itself, by their process id."""

    def look(
        self, now: float, ranks: Mapping[int, record_watch.RecordedProcess], expected: Iterable[int]
    ) -> dict[int, Observation]:
        """Each rank that is there or should be."""
        missing = [rank for rank in expected if rank not in ranks]
        quiet = now - max((rank.moved for rank in ranks.values()), default=now) >= QUIET_SECONDS
        if quiet and self._observer.is_due:
            self._look_at(ranks, missing)
        observations = {number: self._recorded(now, rank) for number, rank in ranks.items()}
        return observations | {number: self._unrecorded(number) for number in missing}

    def vanished(self, ranks: Mapping[int, record_watch.RecordedProcess]) -> bool:
        """Whether a rank is gone that never said how it ended, nor left its process group. Frameworks kill their
        workers, one after the other, when these have done so."""
        own = (rank for rank in ranks.values() if not (rank.ended or rank.elsewhere or rank.destroyed_group))
        return any(is_gone(rank.pid) for rank in own)

    def place(self, rank: record_watch.RecordedProcess) -> Place | None:
        """Where a rank stands, as it says itself."""
        if rank.beat is None:
            return None
        call = SystemCall() if rank.elsewhere else self._observer.activity(rank.pid).call
        doing = Doing.SLEEPS if call.sleeps else Doing.WAITS
        process = SampledProcess(rank.pid, rank.rank, doing=doing, call=call.text, stack=rank.beat.stack)
        return place_of(process, nccl=rank.backend == "nccl")

    def _look_at(self, ranks: Mapping[int, record_watch.RecordedProcess], missing: list[int]) -> None:
        if missing:
            by_rank = _pids_by_rank(self._guard)
            self.unrecorded = {rank: by_rank[rank] for rank in missing if rank in by_rank}
        here = (rank.pid for rank in ranks.values() if not (rank.ended or rank.elsewhere))
        pids = [*here, *self.unrecorded.values()]
        self._children = {pid: descendants(pid) for pid in pids}
        threads = {rank.beat.thread for rank in ranks.values() if rank.beat}
        threads |= recorders_threads(self._records)  # those in DataLoader workers, too
        processes = [process for pid in pids for process in (pid, *self._children[pid])]
        self._observer.look(processes, threads)
        calls = {pid: self._observer.activity(pid).call for pid in processes}
        sockets = {pid: call.sockets for pid, call in calls.items() if "socket" in call.text}
        job = (self._guard, *descendants(self._guard)) if sockets else ()
        self._outside = connected_outside(sockets, job) if sockets else set()

    def _recorded(self, now: float, rank: record_watch.RecordedProcess) -> Observation:
        if rank.ended:
            return Observation(RankActivity.LEFT, rank.moved)
        if rank.elsewhere or not (rank.beat is None or rank.beat.main):
            return replace(self._by_beat(now, rank), destroyed_group=rank.destroyed_group)
        fresh = rank.beat is not None and now - rank.beat.time < FRESH_SECONDS
        place = self.place(rank) if fresh else None
        if now - rank.moved < QUIET_SECONDS and not (place and place.waits):
            return Observation(RankActivity.WORKS, rank.moved)
        poll = self._poll(rank) if fresh and not (place and place.waits) else None
        observation = self._observation(rank.pid, rank.moved, place, rank.backend, poll)
        return replace(observation, destroyed_group=rank.destroyed_group)

    def _by_beat(self, now: float, rank: record_watch.RecordedProcess) -> Observation:
        """Of a rank on another host, where a shared disk shows it some seconds late, or of one that trains beside its
        main thread: by what it says alone."""
        moved = min(now, rank.moved + SHARED_DISK_SECONDS)
        if rank.beat is not None and now - rank.beat.time > OUTSIDE_SECONDS:
            return Observation(RankActivity.LEFT, moved)
        if (place := self.place(rank)) is not None and place.waits:
            return Observation(RankActivity.WAITS, moved)
        blocked = place is not None and place.blocks and moved < now
        activity = RankActivity.BLOCKED if blocked else RankActivity.WORKS
        return Observation(activity, moved, at_least=OUTSIDE_SECONDS)

    def _unrecorded(self, rank: int) -> Observation:
        """Of a rank that recorded nothing: it imports, or has not come so far, or is not there at all."""
        if rank not in self.unrecorded:
            return Observation(RankActivity.BLOCKED, 0.0)
        return self._observation(self.unrecorded[rank], 0.0, None, "")

    @staticmethod
    def _poll(rank: record_watch.RecordedProcess) -> Poll | None:
        """The loop in which a rank does nothing but look for something."""
        stack = rank.beat.stack if rank.beat else ()
        at = (rank.beat.at,) if rank.beat and rank.beat.at else ()
        return poll_of([where_of(frame) for frame in (*at, *(stack[it] for it in of_script(stack)[::-1]))])

    def _observation(
        self, pid: int, moved: float, place: Place | None, backend: str, poll: Poll | None = None
    ) -> Observation:
        little, children = LITTLE_SHARE, self._children.get(pid, ())
        if place is not None and place.waits:
            # Threads of gloo look again and again while they wait, and those of NCCL spin.
            little = math.inf if backend == "nccl" else BUSY_SHARE
        workers = [self._process(child, LITTLE_SHARE) for child in children]
        activity = rank_activity(self._process(pid, little, backend), place, workers, backend)
        turns = poll is not None and activity is RankActivity.WORKS
        if turns:  # of the loop, which are no work
            activity = rank_activity(self._beside_main(pid, little), place, workers, backend)
        # Who waits for a child comes back when that does.
        awaited = (pid, *children) if place is not None and place.kind is PlaceKind.CHILD else (pid,)
        snapshots = [now for process in awaited if (now := self._observer.activity(process).after)]
        outside = [process for process in awaited if process in self._outside]
        if activity is not RankActivity.BLOCKED or (place is not None and place.kind is PlaceKind.STORE):
            outside = []
        if any(map(self._receives, outside)):
            activity, outside = RankActivity.WORKS, []
        wakes_in = max((now.call.ends_in for now in snapshots), default=0.0)
        # Who gives up looking some day goes on, and what is no file may come from where nobody looks.
        unsure = outside or (turns and poll is not None and (poll.gives_up or not poll.of_files))
        return Observation(activity, moved, wakes_in, OUTSIDE_SECONDS if unsure else 0.0)

    def _process(self, pid: int, little: float, backend: str = "") -> SampledProcess:
        """A process between the last two looks, without its stack; threads that only wait use ``little`` of a CPU."""
        activity = self._observer.activity(pid)
        doing = activity.doing(little, LITTLE_SHARE) if activity.after else Doing.WAITS
        wakes = 0.0 if backend == "nccl" else activity.wakes
        call = activity.call.text
        return SampledProcess(pid, None, ProcessRole.WORKER, doing=doing, call=call, wakes=wakes)

    def _beside_main(self, pid: int, little: float) -> SampledProcess:
        """A process without its main thread, which does nothing but look for something, as if that slept."""
        doing = self._observer.activity(pid).beside_main().doing(little)
        sleeps = doing in (Doing.WAITS, Doing.UNKNOWN)
        return SampledProcess(pid, None, ProcessRole.WORKER, doing=Doing.SLEEPS if sleeps else doing)

    def _receives(self, pid: int) -> bool:
        """Whether data come in a connection of which it reads: a poll also ends by its time limit."""
        activity = self._observer.activity(pid)
        return activity.wakes >= FLOW_WAKES and activity.call.text.startswith(("read", "recv"))


def _pids_by_rank(guard: int) -> dict[int, int]:
    """The processes below that were given a rank; the first of each, since the others are its children."""
    pids: dict[int, int] = {}
    for pid in descendants(guard):
        try:
            environ = psutil.Process(pid).environ()
        except psutil.Error:
            continue
        # A framework that starts the other ranks itself may give them a local rank alone.
        on_first = environ.get("NODE_RANK", "0") in ("", "0")
        rank = number_in(environ, ("RANK", "LOCAL_RANK") if on_first else ("RANK",))
        if rank is not None:
            pids.setdefault(rank, pid)
    return pids
