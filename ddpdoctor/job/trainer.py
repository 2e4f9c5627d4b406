"""Runs the bundled trainer with the torchrun command itself, and reads what its ranks left behind."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

import ddpdoctor
from ddpdoctor.group.record import Failure
from ddpdoctor.hang.stacks import Frame, StacksUnavailable, take_stacks
from ddpdoctor.host.activity import Activity
from ddpdoctor.host.cgroup import read_cgroup
from ddpdoctor.host.system import System
from ddpdoctor.job.launch import Ending, new_run_id, start
from ddpdoctor.plan import Plan
from ddpdoctor.trace import RankTrace, Trace

_GRACE = 0.5
"""Seconds that torchrun has to end its workers by itself; they are killed afterwards in any case."""
_LIMIT, _LIMIT_PER_RANK = 60.0, 5.0
"""Seconds that the run may take; ten times what two cores need, which import torch once for each rank."""
IDLE_SECONDS = 10.0
"""Without any process of the run using its CPU or its disk: nobody works, so nobody will come."""
_LOOK_SECONDS = 0.1
_TAIL_BYTES = 64 * 1024
_TAIL_LINES = 30
_TORCHRUN = "import sys; sys.path[:] = filter(None, sys.path); from torch.distributed.run import main; main()"
"""What the torchrun command runs. Unlike ``python -m``, it does not search the current directory, where a user may
have a random.py."""
_EXIT_CODE = re.compile(r"rank +: (?P<rank>\d+) \(local_rank: \d+\)\s+exitcode +: (?P<code>-?\d+) ")
"""How torchrun's summary tells the exit status of a rank that failed."""


def trainer_script() -> Path:
    """The trainer: beside this package in a checkout, inside it where it is installed."""
    package = Path(ddpdoctor.__file__).parent
    places = (package / "sample_trainer", package.parent / "sample_trainer")
    return next(place / "trainer.py" for place in places if (place / "trainer.py").exists())


class TrainerRun:
    """The trainer on this node's ranks while it runs."""

    def __init__(
        self, plan: Plan, folder: Path, script: Path | None = None, if_orphaned: Sequence[Path] = ()
    ) -> None:
        """Start it.

        Args:
            folder: empty; everything that is written goes there.
            script: the one to run, with the trainer's options; the trainer itself where none is given.
            if_orphaned: folders that are removed where this process is killed before the end.
        """
        self.plan, self.folder = plan, folder
        self._begun = time.monotonic()
        self._run_id, self._log = new_run_id(), folder / "torchrun.log"
        self._running = start(
            _torchrun(plan, folder, script or trainer_script()),
            folder=folder,
            run_id=self._run_id,
            environ=_environ(folder),
            grace=_GRACE,
            stdout=self._log,
            stderr=self._log,
            if_orphaned=if_orphaned,
        )

    def stop(self) -> Ending:
        """End every process of it."""
        return self._running.stop()

    def finish(self, deadline: float) -> Trace:
        """Wait for its end, no longer than until the deadline or until nobody works any more; leave no process.

        Args:
            deadline: on the monotonic clock.
        """
        try:
            ending = self._wait(deadline)
            seconds = time.monotonic() - self._begun
            stacks = {} if ending else _stacks(self._run_id)
        finally:
            ended = self.stop()
        return Trace(
            ranks=_ranks(self.plan, self.folder, _read(self._log), stacks),
            status=ended.status,
            seconds=seconds,
            timed_out=ending is None,
            out_of_time=ending is None and time.monotonic() >= deadline,
            log=_tail(self._log),
            left_behind=tuple(process.command for process in ended.left_behind),
        )

    def _wait(self, deadline: float) -> Ending | None:
        end = min(deadline, self._begun + _LIMIT + _LIMIT_PER_RANK * self.plan.nproc)
        system = System()
        activity = Activity(read_cgroup(system).granted(system.cpus()[1]))
        while time.monotonic() < end and activity.idle_seconds(self._pids()) < IDLE_SECONDS:
            if ending := self._running.wait(_LOOK_SECONDS):
                return ending
        return self._running.poll()

    def _pids(self) -> list[int]:
        try:
            return [child.pid for child in psutil.Process(self._running.pid).children(recursive=True)]
        except psutil.Error:
            return []


def run(plan: Plan, folder: Path, deadline: float, script: Path | None = None) -> Trace:
    """Start a :class:`TrainerRun` and wait for it."""
    return TrainerRun(plan, folder, script).finish(deadline)


def _torchrun(plan: Plan, folder: Path, script: Path) -> list[str]:
    # --standalone takes a free port by itself, which no other process can snatch away in between; the local
    # address keeps it from depending on whether this host's name resolves, which is another check's matter.
    options = {
        "--nnodes": "1",
        "--nproc-per-node": str(plan.nproc),
        "--local-addr": "127.0.0.1",
        "--max-restarts": "0",
        "--log-dir": str(folder / "torchrun"),
        "--redirects": "3",
    }
    flat = [part for option in options.items() for part in option]
    return [
        *(sys.executable, "-c", _TORCHRUN, "--standalone", *flat),
        *(str(script), "--backend", plan.backend, "--out", str(folder / "out")),
    ]


def _environ(folder: Path) -> dict[str, str]:
    # torchrun takes its defaults from PET_*, which a cluster sets for its own job; PYTHONSAFEPATH would hide the
    # trainer's own modules from it.
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PET_") and name != "PYTHONSAFEPATH"
    }
    # torch makes this folder, by default in the temporary one, and leaves it there.
    return {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), **inherited}


def _stacks(run_id: str) -> dict[int, tuple[Frame, ...]]:
    """The stacks of the ranks that are alive; of those that may be looked at."""
    pids = {
        process.pid: int(process.environ["RANK"])
        for process in System().processes()
        if process.environ.get("DDPDOCTOR_RUN") == run_id and process.environ.get("RANK", "").isdigit()
    }
    taken = take_stacks(pids)
    return {pids[pid]: stack for pid, stack in taken.items() if not isinstance(stack, StacksUnavailable)}


def _ranks(
    plan: Plan, folder: Path, said: str, stacks: dict[int, tuple[Frame, ...]]
) -> tuple[RankTrace, ...]:
    exit_codes = {int(found["rank"]): int(found["code"]) for found in _EXIT_CODE.finditer(said)}
    return tuple(
        _rank(rank, folder, exit_codes.get(rank), stacks.get(rank, ())) for rank in range(plan.nproc)
    )


def _rank(rank: int, folder: Path, exit_code: int | None, stack: tuple[Frame, ...]) -> RankTrace:
    summary = _json(folder / "out" / f"rank{rank}.json")
    own = next(iter((folder / "torchrun").glob(f"*/attempt_0/{rank}")), folder / "torchrun")
    return RankTrace(
        rank,
        finished=summary is not None,
        summary=summary or {},
        failure=_failure(own / "error.json"),
        exit_code=exit_code,
        output=_tail(own / "stderr.log") or _tail(own / "stdout.log"),
        stack=stack,
    )


def _failure(file: Path) -> Failure | None:
    """The exception that ``@record`` wrote where torchrun looks for it."""
    said = _json(file)
    if said is None:
        return None
    kind, _, message = said["message"]["message"].partition(": ")
    # The record's own time is in whole seconds, which tie.
    written = file.stat().st_mtime
    return Failure(kind, message, said["message"]["extraInfo"]["py_callstack"], written)


def _json(file: Path) -> Any:
    """A file's content; None where it is absent, or was cut short by its writer's end."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return None


def _read(file: Path) -> str:
    """The end of a file that may be long; empty where it is absent."""
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, file.stat().st_size - _TAIL_BYTES))
            return opened.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


def _tail(file: Path) -> tuple[str, ...]:
    return tuple(_read(file).splitlines()[-_TAIL_LINES:])
