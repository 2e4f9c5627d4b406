"""Runs a job with the recorder inside, watches it from outside, stops it, and reads what it left behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

import psutil

from ddpdoctor.hang.stacks import Frame, StacksUnavailable, is_ours, take_stacks
from ddpdoctor.host.activity import Activity
from ddpdoctor.host.cgroup import read_cgroup
from ddpdoctor.host.system import System
from ddpdoctor.job.command import GATE, RECORD, TORCHRUN_LOGS, Job, Kind
from ddpdoctor.job.launch import Ending, new_run_id, start
from ddpdoctor.job.output import Stream
from ddpdoctor.job.remains import ERR, OUT, Stopped, read_trace, write_ending, write_job
from ddpdoctor.job.watch import Watch
from ddpdoctor.plan import Plan
from ddpdoctor.trace import Trace

_GRACE = 0.5
"""Seconds that a launcher has to end its workers by itself; they are killed afterwards in any case."""
IDLE_SECONDS = 10.0
"""Without any process of the run using its CPU or its disk: nobody works, so nobody will come."""
START_SECONDS = 60.0
"""The same before any rank imported torch: a script may wait for a lock, or for its data to be mounted."""
END_SECONDS = 3.0
"""The same once every rank has reached its end: gloo hangs there now and then, which is no finding."""
VICTIM_SECONDS = 10.0
"""After a rank failed: for the launcher to notice, and for the others to say what they saw."""
_LOOK_SECONDS = 0.1


class Follower(Protocol):
    """What passes the job's output on."""

    def finish(self) -> None:
        """Pass on what is left."""


Follow = Callable[[Callable[[], Iterable[Stream]]], Follower]
"""Begins to pass output on; is given what finds the files."""


class JobRun:
    """A job while it runs."""

    def __init__(
        self,
        job: Job,
        plan: Plan,
        folder: Path,
        *,
        torch: str | None = None,
        follow: Follow | None = None,
        if_orphaned: Sequence[Path] = (),
    ) -> None:
        """Start it.

        Args:
            folder: empty; everything that is written goes there.
            torch: the version of the torch that is installed.
            follow: passes its output on; where there is none it is only kept.
            if_orphaned: folders that are removed where we die, by SIGKILL too, before it ends.
        """
        self.job, self.plan, self.folder = job, plan, folder
        write_job(folder, job, plan)
        (folder / RECORD).mkdir()
        self._begun = time.monotonic()
        self._watch = Watch(folder / RECORD)
        self._activity = _activity()
        self._idle = 0.0
        self._failed: float | None = None
        self._running = start(
            job.command(plan, folder),
            folder=folder,
            run_id=new_run_id(),
            environ=job.environ(plan, folder, torch),
            grace=_GRACE,
            stdout=folder / OUT,
            stderr=folder / ERR,
            if_orphaned=if_orphaned,
        )
        self._follower = follow(self._streams) if follow else None

    def release(self) -> None:
        """Let the ranks begin, where they are held."""
        if not (self.folder / GATE).exists():
            (self.folder / GATE).touch()
            self._begun = time.monotonic()

    def stop(self) -> Ending:
        """End every process of it."""
        return self._running.stop()

    def finish(self, deadline: float) -> Trace:
        """Wait for its end, no longer than until the deadline or until nobody works any more; leave no process.

        Args:
            deadline: on the monotonic clock.
        """
        self.release()
        hung = False
        stacks: dict[int, tuple[Frame, ...]] = {}
        try:
            while (ending := self._running.wait(_LOOK_SECONDS)) is None and time.monotonic() < deadline:
                self._look()
                if hung := self._is_hung():
                    break
                if self._is_over():
                    break
            seconds = time.monotonic() - self._begun
            out_of_time = ending is None and time.monotonic() >= deadline and not self._all_ended()
            if hung or out_of_time:
                stacks = self._stacks()
        finally:
            ended = self.stop()
            if self._follower:
                self._follower.finish()
        # A launcher that we stopped after every rank's end has nothing to say of them.
        status = ended.status if ending or hung or out_of_time or self._failed else 0
        left_behind = tuple(process.command for process in ended.left_behind)
        write_ending(
            self.folder, Stopped(status, seconds, hung or out_of_time, out_of_time, left_behind, stacks)
        )
        return read_trace(self.folder)

    # -- while it runs ------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._watch.look()
        self._idle = self._activity.idle_seconds(self._pids())
        if self._watch.somebody_failed():
            self._failed = self._failed or time.monotonic()
        else:
            self._failed = None  # the launcher has started the ranks anew

    def _is_over(self) -> bool:
        """Whether what is still to come no longer matters."""
        if self._failed and time.monotonic() - self._failed > VICTIM_SECONDS:
            return True
        return self._all_ended() and self._idle > (
            IDLE_SECONDS if self.job.kind is Kind.LINE else END_SECONDS
        )

    def _is_hung(self) -> bool:
        if self._all_ended() or self._failed:
            return False
        if not self._watch.ranks():
            # A launch line may wait in a queue, and other nodes may be started by hand.
            may_wait = self.job.kind is Kind.LINE or self.plan.nnodes > 1
            return not may_wait and self._idle > START_SECONDS
        return self._idle > IDLE_SECONDS

    def _all_ended(self) -> bool:
        return self._watch.all_ended(None if self.job.kind is Kind.LINE else self.plan.nproc)

    def _pids(self) -> list[int]:
        try:
            return [child.pid for child in psutil.Process(self._running.pid).children(recursive=True)]
        except psutil.Error:
            return []

    def _stacks(self) -> dict[int, tuple[Frame, ...]]:
        """The stacks of the ranks that have not ended; of those that may be looked at."""
        pids = {process.pid: rank for rank, process in self._watch.ranks().items() if not process.ended}
        taken = take_stacks(pids)
        return {
            pids[pid]: tuple(frame for frame in stack if not is_ours(frame.file))
            for pid, stack in taken.items()
            if not isinstance(stack, StacksUnavailable)
        }

    def _streams(self) -> list[Stream]:
        """The files that hold the script's output; what torchrun itself says is not among them."""
        if self.job.kind is Kind.LINE:
            return [Stream(self.folder / OUT, False), Stream(self.folder / ERR, True)]
        first = self.plan.node_rank * self.plan.nproc
        found = []
        for own in (self.folder / TORCHRUN_LOGS).glob("*/attempt_*/*"):
            label = f"[rank {first + int(own.name)}] " if self.plan.world_size > 1 else ""
            found += [Stream(own / OUT, False, label), Stream(own / ERR, True, label)]
        return found


def _activity() -> Activity:
    system = System()
    return Activity(read_cgroup(system).granted(system.cpus()[1]))
