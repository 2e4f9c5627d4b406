"""Starts the live group, watches it from outside, and stops it: the command's side. Never imports torch."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from ddpdoctor.group import files
from ddpdoctor.group.record import Failure, GroupRecord, Measured, PortUse, RankRecord, Stage
from ddpdoctor.hang.stacks import Frame, StacksUnavailable, parse_faulthandler, take_stacks
from ddpdoctor.host.system import System
from ddpdoctor.job.launch import Running, start
from ddpdoctor.logs import nccl
from ddpdoctor.model import Evidence
from ddpdoctor.plan import Plan
from ddpdoctor.text import quote_command

_ROOT = Path(__file__).parents[2]
_START = """import sys
sys.path[:] = [path for path in sys.path if path] + [{root!r}]
from ddpdoctor.group.engine import main
main({folder!r})
"""
"""The engine's program. The current directory is not searched: a user's own random.py there is not ours to
import, and torchrun would not import it either."""
POLL_SECONDS = 0.01
PRELOAD_SECONDS = 60.0
"""For the import of torch, which takes a second from a warm disk and half a minute from a cold network one."""
JOIN_SECONDS = 30.0
"""For all ranks to be forked and to have joined the process group."""
LEAVE_SECONDS = 10.0
"""For the engine to end after its last rank finished."""
IDLE_SECONDS = 5.0
"""Without an event and without any rank using its CPU or its disk: nobody is working, so nobody will come."""
END_GRACE_SECONDS = 0.3
"""Between SIGTERM and SIGKILL: these are our own ranks, and they have nothing to save."""
VICTIM_SECONDS = 1.0
"""After a rank broke, for the others to notice and say so."""
CPU_LOOK_SECONDS = 0.25
CLOCK_TICKS = 100
LOG_LINES = 20
TIME_LIMIT = "the time limit was reached"
_JOINING, _LEAVING = "joining the group", "leaving the group"
_FAULTHANDLER_SECONDS = 0.3
_NOISE = re.compile(
    r"Failed to initialize NumPy|_conversion_method_template|OMP_NUM_THREADS|\*{20}|run\.py:\d+\] $"
)
_STATES = {psutil.STATUS_DISK_SLEEP: "D", psutil.STATUS_ZOMBIE: "Z", psutil.STATUS_DEAD: "X"}


@dataclass
class _Rank:
    """What is known of one rank while it runs."""

    reader: files.EventReader
    pid: int = 0
    host: str = ""
    joined: bool = False
    finished: bool = False
    failure: Failure | None = None
    died: float | None = None
    step: str | None = None
    steps: int = 0
    current: str | None = None
    begun: float = 0.0
    limit: float = JOIN_SECONDS
    measured: dict[str, Measured] = field(default_factory=dict)
    stack: tuple[Frame, ...] = ()


class GroupRun:
    """The live group while it runs."""

    def __init__(
        self, plan: Plan, measurements: Iterable[str], folder: Path, run_id: str, system: System
    ) -> None:
        self.plan, self.folder, self.system = plan, folder, system
        self.measurements = list(measurements)
        self.started = time.monotonic()
        files.write_json(folder / files.PLAN, {"plan": plan.to_json(), "measurements": self.measurements})
        self._process: Running = start(
            [sys.executable, "-c", _START.format(root=str(_ROOT), folder=str(folder))],
            folder=folder,
            run_id=run_id,
            environ={**system.environ, **_nccl_debug(plan, system, folder)},
            grace=END_GRACE_SECONDS,
            stdout=folder / files.LOG,
            stderr=folder / files.LOG,
        )
        first = plan.node_rank * plan.nproc
        self._ranks = {
            rank: _Rank(files.EventReader(files.rank_file(folder, rank)))
            for rank in range(first, first + plan.nproc)
        }
        self._last_event = self._last_busy = time.monotonic()
        self._cpu: dict[int, int] = {}
        self._looked = self._go_time = time.monotonic()
        self._port = PortUse(plan.master_port)
        self._stack_note: str | None = None
        self._log: list[str] = []

    def stop(self) -> None:
        """End every process of the group, at once."""
        self._process.stop()

    def finish(self, deadline: float, stage: Callable[[str], None]) -> GroupRecord:
        """Let the ranks go, watch them to their end, and stop whatever is left.

        Args:
            deadline: of the whole command, on the monotonic clock.
            stage: is told what the group does now.
        """
        hung: str | None = None
        try:
            broken = self._until(self._is_ready, PRELOAD_SECONDS, deadline, "torch was not imported")
            if broken is None:
                self._go()
                broken, hung = self._watch(deadline, stage)
            if broken is None:
                broken = self._until(self._has_ended, LEAVE_SECONDS, deadline, "the ranks did not end")
            self._log = self._log_lines()  # before our own stop adds to it
        finally:
            self.stop()
        return self._record(broken, hung)

    # -- before the ranks -------------------------------------------------------------------------------

    def _is_ready(self) -> bool:
        return (self.folder / files.READY).exists()

    def _has_ended(self) -> bool:
        return self._process.poll() is not None

    def _until(self, there: Callable[[], bool], limit: float, deadline: float, failure: str) -> str | None:
        """Wait for something of the engine; why it did not come, or None."""
        end = min(time.monotonic() + limit, deadline)
        while not there():
            if self._has_ended() and not there():
                return f"{failure}: {self._last_words() or 'the process ended without a word'}"
            if time.monotonic() > end:
                return f"{failure} within {limit:.0f} s" if end < deadline else TIME_LIMIT
            time.sleep(POLL_SECONDS)
        return None

    def _go(self) -> None:
        """Start the ranks on the master port; on another one where it is taken, which is DD002's to tell."""
        before = self.system.try_bind("", self.plan.master_port) if self.plan.node_rank == 0 else None
        port = self.system.free_port() if before and self.plan.nnodes == 1 else self.plan.master_port
        self._port = PortUse(port, before=before)
        files.write_json(self.folder / files.GO, {"port": port})
        self._last_event = self._last_busy = self._looked = self._go_time = time.monotonic()

    # -- while they run ---------------------------------------------------------------------------------

    def _watch(self, deadline: float, stage: Callable[[str], None]) -> tuple[str | None, str | None]:
        """Follow the ranks until all finished, one broke, or nobody answers: (broken, hung in)."""
        told = ""
        while True:
            self._read_events()
            if not self._unfinished():
                return None, None
            if self._somebody_broke():
                self._wait_for_the_others()
                return self._why_broken(), None
            where = self._where()
            if self._is_hung():
                self._take_stacks()
                return f"the group stopped answering in {where}", where
            if time.monotonic() > deadline:
                return TIME_LIMIT, None
            if where != told:
                told = where
                stage(f"{self.plan.nproc} ranks: {where}")
            time.sleep(POLL_SECONDS)

    def _read_events(self) -> None:
        for one in self._ranks.values():
            for event in one.reader.read():
                self._last_event = time.monotonic()
                _apply(one, event)
        if self._port.during is None and all(one.joined for one in self._ranks.values()):
            during = self.system.try_bind("", self._port.port) if self.plan.node_rank == 0 else None
            self._port = replace(self._port, during=during)

    def _somebody_broke(self) -> bool:
        for one in self._ranks.values():
            if one.pid and not one.finished and not one.failure and not one.died and _is_gone(one.pid):
                self._read_events()
                if not one.finished and not one.failure:
                    one.died = time.time()
        return any(one.failure or one.died for one in self._ranks.values()) or self._has_ended()

    def _wait_for_the_others(self) -> None:
        """Time for the engine to see the exit status, and for the victims to write down their errors."""
        end = time.monotonic() + VICTIM_SECONDS
        while time.monotonic() < end and not self._has_ended():
            time.sleep(POLL_SECONDS)
        self._read_events()

    def _where(self) -> str:
        """What the rank that is furthest behind does."""
        order = [_JOINING, *self.measurements, _LEAVING]
        doing = (one.current or (_LEAVING if one.joined else _JOINING) for one in self._unfinished())
        return min(doing, key=order.index)

    def _unfinished(self) -> list[_Rank]:
        return [one for one in self._ranks.values() if not one.finished]

    def _is_hung(self) -> bool:
        now = time.monotonic()
        if self._is_busy():
            self._last_busy = now
        if now - max(self._last_event, self._last_busy) > IDLE_SECONDS:
            return True
        return any(
            now - max(one.begun, self._go_time) > one.limit
            for one in self._ranks.values()
            if not one.finished
        )

    def _is_busy(self) -> bool:
        """Whether any rank used more than a twentieth of a CPU since the last look, or waits for its disk."""
        now = time.monotonic()
        if now - self._looked < CPU_LOOK_SECONDS:
            return False
        span, self._looked = now - self._looked, now
        busy = not all(one.pid for one in self._ranks.values())
        for one in self._ranks.values():
            state, ticks = _cpu(one.pid) if one.pid else ("", 0)
            busy |= state == "D" or ticks - self._cpu.get(one.pid, 0) > 0.05 * span * CLOCK_TICKS
            self._cpu[one.pid] = ticks
        return busy

    def _take_stacks(self) -> None:
        pids = {one.pid: one for one in self._unfinished() if one.pid}
        for pid, stack in take_stacks(pids).items():
            if isinstance(stack, StacksUnavailable):
                self._stack_note = str(stack)
                pids[pid].stack = self._own_stack(pids[pid])
            else:
                pids[pid].stack = _ours_removed(stack)

    def _own_stack(self, one: _Rank) -> tuple[Frame, ...]:
        rank = next(rank for rank, known in self._ranks.items() if known is one)
        try:
            os.kill(one.pid, signal.SIGUSR2)
        except ProcessLookupError:
            return ()
        time.sleep(_FAULTHANDLER_SECONDS)
        text = files.stack_file(self.folder, rank).read_text(encoding="utf-8", errors="replace")
        return _ours_removed(parse_faulthandler(text))

    # -- afterwards -------------------------------------------------------------------------------------

    def _why_broken(self) -> str:
        first = GroupRecord(self.plan, self._rank_records({})).first_to_break()
        if first is None:
            ended = files.read_json(self.folder / files.ENDED) or {}
            return f"the group did not start: {ended.get('error') or self._last_words() or 'no reason given'}"
        what = f"failed with {first.failure.type}" if first.failure else "died"
        return (
            f"rank {first.rank} {what} in {first.current}"
            if first.joined
            else f"rank {first.rank} did not join"
        )

    def _record(self, broken: str | None, hung: str | None) -> GroupRecord:
        ended = files.read_json(self.folder / files.ENDED) or {"exit_codes": {}}
        ready = files.read_json(self.folder / files.READY) or {}
        after = self.system.try_bind("", self._port.port) if self._port.during is not None else None
        limit = max(one.limit for one in self._ranks.values())
        return GroupRecord(
            plan=self.plan,
            ranks=self._rank_records(ended["exit_codes"]),
            backend=self.plan.backend,
            torch=ready.get("torch", ""),
            wanted=frozenset(self.measurements),
            stage=self._stage(),
            broken=broken,
            hung=hung,
            deadline=limit,
            port=replace(self._port, after=after),
            left_behind=self._left_behind(),
            log=tuple(self._log),
            nccl=self._nccl(),
            stack_note=self._stack_note,
            seconds=time.monotonic() - self.started,
        )

    def _stage(self) -> Stage:
        if not self._is_ready():
            return Stage.IMPORT
        if not all(one.joined for one in self._ranks.values()):
            return Stage.JOIN
        return Stage.MEASURE if self._unfinished() else Stage.END

    def _rank_records(self, exit_codes: dict[str, int]) -> tuple[RankRecord, ...]:
        here = [
            RankRecord(
                rank,
                one.pid,
                one.host,
                one.measured,
                joined=one.joined,
                finished=one.finished,
                failure=one.failure,
                died=one.died,
                exit_code=exit_codes.get(str(rank)),
                current=one.current,
                step=one.step,
                steps=one.steps,
                stack=one.stack,
            )
            for rank, one in self._ranks.items()
        ]
        everything = files.read_json(self.folder / files.EVERYTHING) or []
        elsewhere = [
            RankRecord(
                rank,
                host=one["host"],
                measured={name: Measured(value) for name, value in one["measured"].items()},
                joined=True,
                finished=True,
            )
            for rank, one in enumerate(everything)
            if rank not in self._ranks
        ]
        return tuple(sorted([*here, *elsewhere], key=lambda record: record.rank))

    def _left_behind(self) -> tuple[str, ...]:
        """Processes that outlived an engine that ended by itself, and shared memory of its ranks."""
        ending = self._process.poll()
        outlived = ending.left_behind if ending else ()
        return tuple(f"process {one.pid}: {quote_command([one.command])}" for one in outlived)

    def _nccl(self) -> tuple[Evidence, ...]:
        """What NCCL_DEBUG said, by rank; the file of a rank has its pid in its name."""
        facts = {}
        for rank, one in self._ranks.items():
            for path in self.folder.glob(f"nccl.*.{one.pid}.log"):
                facts[rank] = nccl.parse(path.read_text(encoding="utf-8", errors="replace"))
        return nccl.as_evidence(facts)

    def _last_words(self) -> str:
        return next(iter(reversed(self._log_lines())), "")

    def _log_lines(self) -> list[str]:
        """The last lines of the engine and of each rank, without the noise that torch makes everywhere."""
        found: list[str] = []
        for path in [self.folder / files.LOG, *sorted((self.folder / "output").rglob("stderr.log"))]:
            if path.exists():
                text = path.read_text(encoding="utf-8", errors="replace")
                found += [line for line in text.splitlines() if line.strip() and not _NOISE.search(line)][
                    -LOG_LINES:
                ]
        return found


def _nccl_debug(plan: Plan, system: System, folder: Path) -> dict[str, str]:
    """Have NCCL say what it decides, one file a rank; the user's own settings win."""
    if plan.backend != "nccl":
        return {}
    ours = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": str(folder / "nccl.%h.%p.log")}
    return {name: value for name, value in ours.items() if name not in system.environ}


def _apply(one: _Rank, event: dict[str, Any]) -> None:
    """Bring what is known of a rank up to one event of its file."""
    kind = event["event"]
    if kind == "hello":
        one.pid, one.host = event["pid"], event["host"]
    elif kind == "joined":
        one.joined = True
    elif kind in ("begin", "prepare"):
        one.current, one.step = event["name"], None
        one.begun, one.limit = time.monotonic(), event.get("limit", JOIN_SECONDS)
    elif kind == "step":
        one.step = event["step"]
        one.steps += 1
    elif kind == "done":
        one.measured[event["name"]] = Measured(event["value"], event["seconds"])
        one.current = None
    elif kind == "failed":
        one.failure = Failure(event["type"], event["message"], event["traceback"], event["time"])
    elif kind == "finished":
        one.finished = True


def _is_gone(pid: int) -> bool:
    return _cpu(pid)[0] in ("", "Z", "X")


def _cpu(pid: int) -> tuple[str, int]:
    """A process's state letter and its CPU time in clock ticks; an empty state where it is gone."""
    try:
        status = psutil.Process(pid)
        with status.oneshot():
            times = status.cpu_times()
            return _STATES.get(status.status(), "S"), int((times.user + times.system) * CLOCK_TICKS)
    except psutil.Error:
        return "", 0


def _ours_removed(stack: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The stack below the launcher's and our own frames: what a measurement called."""
    inside = [index for index, frame in enumerate(stack) if frame.file.endswith("ddpdoctor/group/worker.py")]
    return stack[inside[-1] + 1 :] if inside else stack
