"""Starts the live group, watches it from outside, and stops it: the command's side. Never imports torch."""

import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ddpdoctor.blame.thresholds import HANG_SECONDS, LONGEST_DELAY, SPIN_SECONDS
from ddpdoctor.files import GrowingFile, read_json, write_json
from ddpdoctor.group import rank_files
from ddpdoctor.group.group_record import GroupRecord, Stage
from ddpdoctor.group.measure import TIMED
from ddpdoctor.group.rank_state import (
    RankState,
    last_words,
    log_lines,
    nccl_evidence,
    rank_records,
    take_rank_stacks,
)
from ddpdoctor.host.activity import Observer, Spent
from ddpdoctor.host.cgroup import read_cgroup
from ddpdoctor.host.nccl_settings import debug_variables
from ddpdoctor.host.proc import descendants
from ddpdoctor.host.system import System, loopback_down
from ddpdoctor.job.guarded import start_engine
from ddpdoctor.launch import Launch
from ddpdoctor.text import plural, quote_command

POLL_SECONDS = 0.01
PRELOAD_SECONDS = 60.0
"""For the import of torch, which takes a second from a warm disk and half a minute from a cold network one."""
JOIN_SECONDS = 60.0
"""For all ranks to be forked and to have joined the process group."""
LEAVE_SECONDS = 10.0
"""For the engine to end after its last rank finished."""
RANKS_PER_CPU = 4
"""More than this on one CPU, and each gets the more time: they wait for each other's turn."""
VICTIM_SECONDS = 5.0
"""At most, after a rank broke: for the engine to see its exit status, and for the others to say what they saw."""
PROBE_BYTES = 64 * 1024
"""About what a group writes into its folder."""
TIME_LIMIT = "the time limit was reached"
_JOINING, _LEAVING = "joining the group", "leaving the group"


class GroupRun:
    def __init__(
        self,
        launch: Launch,
        measurements: Iterable[str],
        folder: Path,
        run_id: str,
        system: System,
        if_orphaned: Sequence[Path] = (),
        timed_every: float = 0.0,
    ) -> None:
        """Start the engine, which imports torch and waits. The folders ``if_orphaned`` are removed where this process
        is killed before the end; ranks that are only timed, and take the time they need, are looked at every
        ``timed_every`` seconds."""
        self.launch, self.folder, self.system, self._timed_every = launch, folder, system, timed_every
        self.measurements = list(measurements)
        self.started = time.monotonic()
        write_json(
            folder / rank_files.LAUNCH, {"launch": launch.to_json(), "measurements": self.measurements}
        )
        debugging = debug_variables(system, folder) if launch.backend == "nccl" else {}
        orphaned = (rank_files.checkpoint_folder(folder, launch.checkpoint_dir), *if_orphaned)
        environ = {**system.environ, **debugging}
        self._process = start_engine("ddpdoctor.group.engine", folder, run_id, environ, orphaned)
        first = launch.node_rank * launch.nproc
        self._ranks = [
            RankState(rank, events=GrowingFile(rank_files.rank_file(folder, rank)), limit=JOIN_SECONDS)
            for rank in range(first, first + launch.nproc)
        ]
        self._observer = Observer()
        """Touched whenever there is something new."""
        cpus = read_cgroup(system).granted(system.cpus()[1])
        self._slowdown = max(1.0, launch.nproc / (RANKS_PER_CPU * cpus))
        """How many times its deadline a rank gets."""
        self._port = launch.master_port
        self._stack_note: str | None = None
        self._log: list[str] = []
        self._unwritable = False
        self._when_timed: Callable[[], None] | None = None
        self._lost: Callable[[], str | None] = lambda: None

    def stop(self) -> None:
        """End every process of the group, at once, and remove what a killed rank could not."""
        self._process.stop()
        shutil.rmtree(
            rank_files.checkpoint_folder(self.folder, self.launch.checkpoint_dir), ignore_errors=True
        )

    def finish(
        self,
        deadline: float,
        stage: Callable[[str], None],
        when_timed: Callable[[], None] | None = None,
        lost: Callable[[], str | None] = lambda: None,
    ) -> GroupRecord:
        """Let the ranks go, watch them to their end, by the command's deadline, and stop whatever is left.

        ``stage`` is told what the group does now; ``when_timed`` is called once when nothing is timed any more, so that
        other work may begin; ``lost`` tells in a clause which host of the job was lost, None while all are there.
        """
        self._when_timed, self._lost = when_timed, lost
        hung: str | None = None
        try:
            broken = self._until(self._is_ready, PRELOAD_SECONDS, deadline, "torch was not imported")
            if broken is None:
                broken = self._cannot_meet()
            elif not self._has_ended():
                hung = "import"
            if broken is None:
                self._go()
                broken, hung = self._watch(deadline, stage)
            if broken is None:
                broken = self._until(self._has_ended, LEAVE_SECONDS, deadline, "the ranks did not end")
            # Before our own stop adds to the log, and makes room on a full disk.
            self._log = log_lines(self.folder)
            self._unwritable = bool(broken and self.system.write_probe(str(self.folder), PROBE_BYTES))
        finally:
            self.stop()
        return self._record(broken, hung)

    # -- before the ranks -------------------------------------------------------------------------------

    def _is_ready(self) -> bool:
        return (self.folder / rank_files.READY).exists()

    def _has_ended(self) -> bool:
        return self._process.poll() is not None

    def _until(self, there: Callable[[], bool], limit: float, deadline: float, failure: str) -> str | None:
        """Wait for something of the engine; why it did not come, or None."""
        self._observer.touch()
        began = time.monotonic()
        while not there():
            if self._has_ended() and not there():
                return f"{failure}: {last_words(self.folder) or 'the process ended without an error message'}"
            if self._is_past(limit):
                return f"{failure} within {time.monotonic() - began:.0f} s"
            if time.monotonic() > deadline:
                return TIME_LIMIT
            time.sleep(POLL_SECONDS)
        return None

    def _cannot_meet(self) -> str | None:
        """Why the ranks of one node would wait in vain for each other, where that is known beforehand."""
        down = loopback_down(self.system.interfaces()) if self.launch.nnodes == 1 else None
        return f"loopback interface {down} is down" if down else None

    def _go(self) -> None:
        """Start the ranks; on one node at any port that is free, so that neither the job nor a stranger has it."""
        if self.launch.nnodes == 1:
            self._port = self.system.free_port()
        write_json(self.folder / rank_files.GO, {"port": self._port})
        self._observer.touch()

    # -- while they run ---------------------------------------------------------------------------------

    def _watch(self, deadline: float, stage: Callable[[str], None]) -> tuple[str | None, str | None]:
        """Follow the ranks until all finished, one broke, or nobody answers: (broken, hung in)."""
        announced: str | None = ""
        while True:
            self._read_events()
            self._say_when_timed()
            broke = self._somebody_broke()  # reads what ranks that are gone have told last
            if not self._unfinished():
                return None, None
            if broke:
                self._wait_for_the_others()
                return self._why_broken(), None
            if why := self._lost():
                return why, None
            where = self._where()
            if self._is_hung():
                self._stack_note = take_rank_stacks(self._unfinished(), self.folder)
                return f"the group stopped answering in {where}", where
            if time.monotonic() > deadline:
                return TIME_LIMIT, None
            if (doing := self._ranks[0].step if self._timed_every else where) not in (announced, None):
                announced = doing
                stage(f"{plural(self.launch.nproc, 'rank')}: {doing}")
            time.sleep(self._timed_every or POLL_SECONDS)

    def _say_when_timed(self) -> None:
        timed = {name for name in self.measurements if name in TIMED}
        if self._when_timed and all(rank.joined and timed <= rank.measured.keys() for rank in self._ranks):
            say, self._when_timed = self._when_timed, None
            say()

    def _read_events(self) -> None:
        # Each of them, whatever the others have to tell.
        if any([rank.read_events() for rank in self._ranks]):
            self._observer.touch()

    def _somebody_broke(self) -> bool:
        for rank in self._ranks:
            rank.notice_death()
        return any(rank.failure or rank.died for rank in self._ranks) or self._has_ended()

    def _wait_for_the_others(self) -> None:
        """Time for the engine to see the exit status, and for the victims to write down their errors."""
        self._observer.touch()
        while not (self._is_past(VICTIM_SECONDS, with_work=True) or self._has_ended()):
            for rank in self._ranks:
                rank.notice_death(late=True)  # its peers may tell of closed connections before it is gone
            time.sleep(POLL_SECONDS)
        self._read_events()

    def _where(self) -> str:
        """What the rank that is furthest behind does."""
        order = [_JOINING, *self.measurements, _LEAVING]
        doing = (rank.current or (_LEAVING if rank.joined else _JOINING) for rank in self._unfinished())
        return min(doing, key=order.index)

    def _unfinished(self) -> list[RankState]:
        return [rank for rank in self._ranks if not rank.finished]

    def _is_hung(self) -> bool:
        if self._timed_every:
            return False
        # Not since it began: on a machine with too few CPUs, work that goes on may take any time.
        limit = min((rank.limit for rank in self._unfinished()), default=0.0)
        if not all(rank.joined for rank in self._ranks):
            # Many ranks that connect wait for each other's answers, and nobody seems to work.
            return self._is_past(limit * self._slowdown)
        if self.launch.backend == "gloo":
            limit = min(limit, SPIN_SECONDS)
        idle = self._observer.idle_seconds(self._pids)
        return idle > HANG_SECONDS or self._is_past(limit * self._slowdown, with_work=True)

    def _is_past(self, seconds: float, *, with_work: bool = False) -> bool:
        """Whether this time has gone by since there was something new, as far as our processes could use it;
        ``with_work`` counts the time in which they worked, too."""
        self._observer.follow(self._pids)
        spent = self._observer.spent
        used = spent[Spent.IDLE] + (spent[Spent.WORKING] if with_work else 0.0)
        return used > seconds or sum(spent.values()) > seconds + LONGEST_DELAY

    def _pids(self) -> list[int]:
        """The ranks that are to be seen at work, or all that the engine has started where they are not known yet."""
        pids = [rank.pid for rank in self._unfinished()]
        return pids if pids and all(pids) else descendants(self._process.pid)

    # -- afterwards -------------------------------------------------------------------------------------

    def _why_broken(self) -> str:
        first = GroupRecord(self.launch, rank_records(self._ranks, self.folder)).first_to_break()
        if first is None:
            ended = read_json(self.folder / rank_files.ENDED) or {}
            return f"the group did not start: {ended.get('error') or last_words(self.folder) or 'no reason given'}"
        if not first.joined:
            return f"rank {first.rank} did not join"
        what = f"failed with {first.failure.type}" if first.failure else "died"
        return f"rank {first.rank} {what} in {first.current or _LEAVING}"

    def _record(self, broken: str | None, hung: str | None) -> GroupRecord:
        ready = read_json(self.folder / rank_files.READY) or {}
        return GroupRecord(
            launch=self.launch,
            ranks=rank_records(self._ranks, self.folder),
            backend=self.launch.backend,
            torch=ready.get("torch", ""),
            wanted=frozenset(self.measurements),
            stage=self._stage(),
            broken=broken,
            out_of_time=broken == TIME_LIMIT,
            unwritable=self._unwritable,
            hung=hung,
            port=self._port,
            left_behind=self._left_behind(),
            log=tuple(self._log),
            nccl=nccl_evidence(self._ranks, self.folder),
            stack_note=self._stack_note,
            seconds=time.monotonic() - self.started,
        )

    def _stage(self) -> Stage:
        if not self._is_ready():
            return Stage.IMPORT
        if not all(rank.joined for rank in self._ranks):
            return Stage.JOIN
        return Stage.MEASURE if self._unfinished() else Stage.END

    def _left_behind(self) -> tuple[str, ...]:
        """Processes that outlived an engine that ended by itself."""
        ending = self._process.poll()
        outlived = ending.left_behind if ending else {}
        return tuple(f"process {pid}: {quote_command([command])}" for pid, command in outlived.items())
