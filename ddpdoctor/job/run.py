"""Runs a job with the recorder inside, watches it from outside, stops it, and reads what it left behind."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddpdoctor.blame.liveness import JobState, Judgement
from ddpdoctor.blame.thresholds import HANG_SECONDS, LONGEST_SPAN, QUIET_SECONDS, START_SECONDS
from ddpdoctor.host.cgroup import read_cgroup
from ddpdoctor.host.system import System
from ddpdoctor.job import torchrun
from ddpdoctor.job.command import GATE, RECORD, Job, JobKind
from ddpdoctor.job.guard import Ending
from ddpdoctor.job.guarded import new_run_id, start
from ddpdoctor.job.job_folder import (
    SNAPSHOT,
    Stopped,
    read_trace,
    working_directory,
    write_ending,
    write_job,
    write_sources,
)
from ddpdoctor.job.output_forwarding import Output, Stream
from ddpdoctor.job.record_watch import Watch
from ddpdoctor.job.supervisor import Supervisor
from ddpdoctor.job.torchrun import ERR, OUT
from ddpdoctor.job.written_files import LAYERS, undo
from ddpdoctor.launch import Launch
from ddpdoctor.nodes.agreement import Agreement, RunState
from ddpdoctor.trace import Trace

END_SECONDS = 3.0
"""Without a process that works, after the end of every rank: gloo hangs there now and then, which is no finding."""
IDLE_SECONDS = 10.0
"""The same of a launch line, which may have more to do."""
VICTIM_SECONDS = 6.0
"""After a rank failed: for the launcher to notice, and for the others to say what they saw."""
_LOOK_SECONDS = 0.2
_RARE_LOOK_SECONDS = 0.5
"""Between two looks at a job that goes its own way for days: each takes 1.5 ms of a CPU that a rank may need."""
_MOVING_LOOK_SECONDS = 2.0
"""The same where the last look saw it move: a hang takes longer to be one."""


Follow = Callable[[Callable[[], Iterable[Stream]]], Output]
"""Begins to pass output on; is given what finds the files."""


@dataclass(frozen=True)
class RunPolicy:
    """How a job is looked after."""

    hang_after: float | None = None
    """Seconds without progress after which it has stopped; None to learn them from the run."""
    least: float = HANG_SECONDS
    """Seconds that are waited at least for a rank that is blocked or sleeps, and could come back."""
    grace: float = 0.5
    """Seconds that a launcher has to end its workers by itself; they are killed afterwards in any case."""
    victim_seconds: float = VICTIM_SECONDS
    """After a rank failed, that what the others say is waited for."""
    passes_on: bool = False
    """Whether a signal is passed on to the job, which then has all the time it takes."""
    tell: Callable[[str], object] | None = None
    """Is told in a sentence who waits for whom, where that takes long."""
    on_hang: Callable[[Trace], bool] | None = None
    """Is given a job that has stopped; whether it is to be ended. None to end it."""
    when_looked: Callable[[Watch, RunState], object] | None = None
    """Is given the records, and how the job was judged, after each look."""
    agreement: Agreement | None = None
    """With the other hosts of the job, where there are several that have met."""


class JobRun:
    def __init__(
        self,
        job: Job,
        launch: Launch,
        folder: Path,
        *,
        torch: str | None = None,
        follow: Follow | None = None,
        if_orphaned: Sequence[Path] = (),
        policy: RunPolicy | None = None,
    ) -> None:
        """Start it, into an empty folder. ``follow`` passes its output on, which is otherwise only kept; the folders
        ``if_orphaned`` are removed where we die, by SIGKILL too, before it ends."""
        self.job, self.launch, self.folder, self._policy = job, launch, folder, policy or RunPolicy()
        write_job(folder, job, launch)
        (folder / RECORD).mkdir()
        if job.private:
            (folder / LAYERS).mkdir()
        self._begun, self._oom_kills = time.monotonic(), _oom_kills()
        self._judgement = Judgement(JobState.MOVES)
        self._reported: float | None = None
        """The failure of a rank after which the job was left alone."""
        self._running = start(
            job.command(launch, folder),
            folder=folder,
            run_id=new_run_id(),
            environ=job.environ(launch, folder, torch),
            grace=self._policy.grace,
            stdout=folder / OUT,
            stderr=folder / ERR,
            if_orphaned=if_orphaned,
            passes_on=self._policy.passes_on,
            reads_stdin=not job.bundled,
        )
        pid, asked = self._running.pid, self._policy
        limits, sees_all = (asked.hang_after, asked.least), asked.agreement is not None
        self._supervisor = Supervisor(job, launch, folder / RECORD, pid, *limits, sees_all=sees_all)
        self._follower = follow(self._streams) if follow else None

    def release(self) -> None:
        """Let the ranks begin, where they are held."""
        if not (self.folder / GATE).exists():
            (self.folder / GATE).touch()
            self._begun = time.monotonic()

    def stop(self) -> Ending:
        """End every process of it, and undo what it wrote where that is asked for."""
        ending = self._running.stop()
        undo(self.folder, working_directory(self.folder))
        return ending

    def pass_on(self, number: int) -> None:
        """Give the job a signal, and go on."""
        self._running.send(number)

    def finish(self, deadline: float) -> Trace:
        """Wait for its end, until the deadline, on the monotonic clock, or until it has stopped; leave no process."""
        self.release()
        hung = False
        try:
            while (ending := self._wait(self._pause())) is None and time.monotonic() < deadline:
                self._look()
                if hung := self._is_hung() and self._is_to_end():
                    break
                if self._is_over(deadline):
                    break
            late = ending is None and time.monotonic() >= deadline and not self._supervisor.all_ended()
            seconds = time.monotonic() - self._begun
            if (late and self._stands()) or (ending is None and not hung and self._supervisor.failed_at):
                self._supervisor.capture(self.folder, self._judgement.still)
            ended_at = None if ending else time.monotonic()
        finally:
            ended = self.stop()
            if self._follower:
                self._follower.finish()
        # A launcher that we stopped after every rank's end has nothing to say of them.
        status = ended.status if ending or hung or late or self._supervisor.failed_at else 0
        left_behind = tuple(ended.left_behind.values())
        oom_kills = _oom_kills() - self._oom_kills
        stopped = Stopped(status, seconds, hung or late, late, left_behind, ended_at, oom_kills)
        write_ending(self.folder, stopped)
        trace = read_trace(self.folder)
        write_sources(self.folder, trace)
        return trace

    # -- while it runs ------------------------------------------------------------------------------------

    def _pause(self) -> float:
        """Seconds until the next look."""
        if not self._policy.passes_on:
            return _LOOK_SECONDS
        moves = self._judgement.state is JobState.MOVES and self._judgement.still < QUIET_SECONDS
        moves = moves and not self._supervisor.failed_at and bool(self._supervisor.watch.ranks())
        return _MOVING_LOOK_SECONDS if moves else _RARE_LOOK_SECONDS

    def _wait(self, seconds: float) -> Ending | None:
        """Wait for its end, no longer than this; a machine that stands still meanwhile stops the job, too."""
        before = time.monotonic()
        ending = self._running.wait(seconds)
        if time.monotonic() - before > LONGEST_SPAN:
            self._supervisor.go_on(seen=False)
        return ending

    def _look(self) -> None:
        self._judgement = self._supervisor.look()
        if self._policy.tell and (sentence := self._supervisor.sentence(self._judgement)):
            self._policy.tell(sentence)
        if self._policy.when_looked:
            self._policy.when_looked(self._supervisor.watch, self._state())
        watch = self._supervisor.watch
        if agreement := self._policy.agreement:
            agreement.tell(self._state(), watch.ranks().keys(), watch.world_size)
            for sentence in agreement.newly_lost():
                if self._policy.tell:
                    self._policy.tell(sentence)

    def _state(self) -> RunState:
        if self._supervisor.failed_at:
            return RunState.FAILED
        if self._supervisor.all_ended():
            return RunState.OVER
        return RunState.STILL if self._judgement.state is JobState.HUNG else RunState.MOVES

    def _is_hung(self) -> bool:
        if self._judgement.state is JobState.HUNG:
            return self._policy.agreement is None or self._policy.agreement.all_still()
        failed = self._supervisor.failed_at
        if self._policy.passes_on and failed and failed != self._reported:
            return time.monotonic() - failed > self._policy.victim_seconds
        # A launch line may wait in a queue, and other nodes may be started by hand.
        may_wait = self._supervisor.is_line or self.launch.nnodes > 1
        if self._supervisor.watch.ranks() or may_wait:
            return False
        return self._supervisor.idle_seconds() > START_SECONDS

    def _stands(self) -> bool:
        """Whether it is worth a look at the end of its time: ranks that go on are seen wherever they happen to be."""
        longest = max(self._judgement.still, self._judgement.waited)
        return longest >= HANG_SECONDS or not self._supervisor.watch.ranks()

    def _is_to_end(self) -> bool:
        """Look closely at a job that seems to have stopped, and let whoever cares decide."""
        suspected = self._judgement
        state = self._supervisor.capture(self.folder, suspected.still)
        self._judgement = self._supervisor.look()
        works = suspected.state is JobState.HUNG and state is not JobState.HUNG and not suspected.overdue
        if works and self._policy.hang_after is None:
            self._supervisor.go_on(seen=True)
        elif self._judgement.still >= suspected.still or self._supervisor.failed_at:
            return self._ends_it()
        shutil.rmtree(self.folder / SNAPSHOT, ignore_errors=True)  # it went on while it was looked at
        return False

    def _ends_it(self) -> bool:
        if self._policy.on_hang is None:
            return True
        write_ending(self.folder, Stopped(0, time.monotonic() - self._begun, timed_out=True))
        if self._policy.on_hang(read_trace(self.folder)):
            return True
        self._reported = self._supervisor.failed_at
        self._supervisor.accept()
        shutil.rmtree(self.folder / SNAPSHOT, ignore_errors=True)  # it is told, and may be over soon
        return False

    def _is_over(self, deadline: float) -> bool:
        """Whether what is still to come no longer matters; that of a job which goes its own way always does."""
        if self._policy.passes_on:
            return False
        failed, victim_seconds = self._supervisor.failed_at, self._policy.victim_seconds
        if failed and time.monotonic() - failed > victim_seconds:
            return True
        restarts = self._restarts_before(deadline)
        if self._policy.agreement and self._policy.agreement.is_over(victim_seconds, restarts=restarts):
            return True
        longest = IDLE_SECONDS if self._supervisor.is_line else END_SECONDS
        return self._supervisor.all_ended() and self._supervisor.idle_seconds() > longest

    def _restarts_before(self, deadline: float) -> bool:
        """Whether the launcher may start the ranks anew; where they wait for one that is gone, after their timeout."""
        waits = self._judgement.still if self._judgement.state is JobState.HUNG else math.inf
        ends_at = time.monotonic() + max(0.0, self._supervisor.watch.timeout - waits)
        return self._supervisor.watch.may_restart() and ends_at < deadline

    def _streams(self) -> list[Stream]:
        """The files that hold the script's output; what torchrun itself says is not among them."""
        if self.job.kind is JobKind.LINE:
            return [Stream(self.folder / OUT, False), Stream(self.folder / ERR, True)]
        return torchrun.streams(self.folder, self.launch, lambda _: self.launch.world_size > 1)


def _oom_kills() -> int:
    return read_cgroup(System()).oom_kills
