"""Watches a job while it runs: its records, its processes, and what to think of both."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ddpdoctor.blame.hang_snapshot import Doing, HangSnapshot, ProcessRole, SampledProcess
from ddpdoctor.blame.liveness import HangDetector, JobState, Judgement, snapshot_state
from ddpdoctor.blame.place import place_of
from ddpdoctor.blame.thresholds import FIRST_SECONDS, HANG_SECONDS, SLEEP_SECONDS
from ddpdoctor.hang.capture import capture
from ddpdoctor.hang.snapshots import write
from ddpdoctor.host.activity import Observer
from ddpdoctor.host.proc import descendants, is_gone
from ddpdoctor.job.command import Job, JobKind
from ddpdoctor.job.job_folder import SNAPSHOT
from ddpdoctor.job.rank_observer import RankObserver
from ddpdoctor.job.record_watch import RecordedProcess, Watch
from ddpdoctor.launch import Launch
from ddpdoctor.text import ranks_phrase

TELL_SECONDS = 20.0
"""That somebody has to have waited before it is worth a word."""


class Supervisor:
    """Of one job: by the folder of its records and the guard from which all of it descends. It has stopped after
    ``hang_after`` seconds, where the user chose them, and ``least`` at least for a rank that could still come;
    ``sees_all`` says that somebody looks at the ranks of every other host, too, and a hang is what all agree on."""

    def __init__(
        self,
        job: Job,
        launch: Launch,
        record: Path,
        guard: int,
        hang_after: float | None = None,
        least: float = HANG_SECONDS,
        *,
        sees_all: bool = False,
    ) -> None:
        self._job, self._launch, self._record, self._guard = job, launch, record, guard
        self._sees_all = sees_all
        self.watch = Watch(record)
        self._ranks = RankObserver(guard, record)
        self._processes = Observer()
        self._detector = HangDetector(hang_after, least=least)
        self._announced = 0.0
        self.failed_at: float | None = None
        """When a rank was first seen to have failed."""

    @property
    def is_line(self) -> bool:
        """Whether the user's own launch line runs, so that only its processes know how many they are."""
        return self._job.kind is JobKind.LINE

    def look(self) -> Judgement:
        """Read what is new, and say what to think of it."""
        self.watch.look()
        ranks, now = self.watch.ranks(), time.monotonic()
        observations = self._ranks.look(now, ranks, self._expected(ranks))
        ended = self.all_ended()
        failed = self.watch.somebody_failed() or (not ended and self._ranks.vanished(ranks))
        # The launcher may have started the ranks anew, and the time until then is no pause of theirs.
        self.failed_at = (self.failed_at or now) if failed and not self.watch.may_restart() else None
        if not ranks or failed or ended:
            self.go_on(seen=False)
            return Judgement(JobState.MOVES)
        self._detector.elsewhere = self._is_elsewhere(ranks) and not self._sees_all
        self._detector.together = max(
            FIRST_SECONDS.get(rank.backend or "", HANG_SECONDS) for rank in ranks.values()
        )
        return self._detector.look(now, observations, self.watch.timeout)

    def all_ended(self) -> bool:
        """Whether no rank is left: each reached the end of its script, or was killed, as frameworks kill workers that
        are done. Of any other end the launcher tells."""
        return self.watch.all_ended(None if self.is_line else self._launch.nproc, is_gone)

    def idle_seconds(self) -> float:
        """For how long no process of the job has worked; looked at only where records cannot tell."""
        return self._processes.idle_seconds(lambda: descendants(self._guard))

    def accept(self) -> None:
        """Take the present standstill for known."""
        self._detector.accept()

    def go_on(self, *, seen: bool) -> None:
        """Take the job for one that works, though neither its records nor its CPUs show it, if anybody could look."""
        self._detector.go_on(time.monotonic(), seen=seen)

    def capture(self, folder: Path, still: float) -> JobState:
        """Look closely at every process of the job that is left, and keep what is seen in its folder; what the ranks
        did meanwhile, and still where none is left."""
        ranks = self.watch.ranks()
        alive = {it.pid: rank for rank, it in ranks.items() if not (it.ended or it.elsewhere)}
        strangers = {pid: rank for rank, pid in self._ranks.unrecorded.items() if rank not in ranks}
        by_beat = {rank: seen for rank, process in ranks.items() if (seen := _by_beat(process))}
        if not (alive or strangers or by_beat):
            return JobState.HUNG
        snapshot = _with(capture({**alive, **strangers}, records=self._record, seconds=still), by_beat)
        size, timeout = self.watch.world_size or None, self.watch.timeout
        write(replace(snapshot, world_size=size, timeout=timeout), folder / SNAPSHOT)
        sleep = [it for it in snapshot.processes if it.from_interpreter and it.doing is Doing.SLEEPS]
        hidden = any(process.wakes >= 1 for process in sleep)
        # Of ranks that sleep in turns, variables tell whether they go on; where those are not seen, time does.
        return JobState.SLOW if hidden and still < SLEEP_SECONDS else snapshot_state(snapshot)

    def sentence(self, judgement: Judgement) -> str | None:
        """What to say of ranks that wait; None where nobody waits for long, or no longer than was said."""
        self._announced *= judgement.waited >= self._announced  # another wait has begun
        if judgement.state is not JobState.SLOW or not judgement.others:
            return None
        if judgement.waited < max(TELL_SECONDS, 2 * self._announced):
            return None
        self._announced = judgement.waited
        ranks = self.watch.ranks()
        first = judgement.others[0]
        beat = ranks[first].beat if first in ranks else None
        at = f" at {beat.at}" if beat and beat.at else ""
        place = self._ranks.place(ranks[judgement.waiting[0]])
        inside = f" in {place.what}" if place and place.what else ""
        return (
            f"rank {first} works{at} while {ranks_phrase(judgement.waiting)} "
            f"{'waits' if len(judgement.waiting) == 1 else 'wait'}{inside} for {judgement.waited:.0f} s"
        )

    def _expected(self, ranks: dict[int, RecordedProcess]) -> Sequence[int]:
        """The ranks that this host should have."""
        if self._launch.imagined is not None:
            return self._launch.ranks
        if self._is_elsewhere(ranks):
            return range(0)  # a rendezvous may number the hosts as it likes
        return range(max(0 if self.is_line else self._launch.nproc, self.watch.world_size))

    def _is_elsewhere(self, ranks: dict[int, RecordedProcess]) -> bool:
        if not self.is_line:
            return self._launch.nnodes > 1
        here = max((rank.given_local or 0 for rank in ranks.values()), default=0) or len(ranks)
        return self.watch.world_size > here and not any(rank.local for rank in ranks.values())


def _by_beat(rank: RecordedProcess) -> SampledProcess | None:
    """A rank as it says itself that it is, where no look at its main thread shows what it does in training."""
    beat = rank.beat
    if rank.ended or beat is None or (beat.main and not rank.elsewhere):
        return None
    stack, host = beat.stack, rank.host
    waits = SampledProcess(rank.pid, rank.rank, host=host, doing=Doing.WAITS, stack=stack, again=stack)
    place = place_of(waits, nccl=rank.backend == "nccl")
    known = place is not None and (place.waits or place.blocks)
    return replace(waits, from_interpreter=True, doing=Doing.WAITS if known else Doing.UNKNOWN)


def _with(snapshot: HangSnapshot, by_beat: Mapping[int, SampledProcess]) -> HangSnapshot:
    """The same with what these ranks say of themselves."""
    rest = (it for it in snapshot.processes if it.role is not ProcessRole.RANK or it.rank not in by_beat)
    return replace(snapshot, processes=(*rest, *by_beat.values()))
