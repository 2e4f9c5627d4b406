"""What the command knows of a rank: its events, process and stack while it runs, and the record that checks get."""

import json
import os
import re
import signal
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ddpdoctor.blame.frames import Failure, Frame, parse_faulthandler
from ddpdoctor.files import GrowingFile, read_json
from ddpdoctor.group import rank_files
from ddpdoctor.group.group_record import Measured, RankRecord
from ddpdoctor.hang.stacks import StacksUnavailable, take_stacks
from ddpdoctor.host.proc import is_gone
from ddpdoctor.job.guarded import ENGINE_LOG
from ddpdoctor.logs import nccl_output
from ddpdoctor.model import Evidence

_FAULTHANDLER_SECONDS = 0.3
LOG_LINES = 10
"""Of each process: its last words, not its life."""
_NOISE = re.compile(
    r"\.py:\d+: UserWarning: Failed to initialize NumPy|_conversion_method_template|OMP_NUM_THREADS|\*{20}"
    r"|^[\s^~]*$|run\.py:\d+\] $|torch/distributed/elastic/|torch/multiprocessing/spawn"
)
"""What torch writes in every healthy run, and the launcher's echo of what the ranks say themselves."""


@dataclass(kw_only=True)
class RankState(RankRecord):
    """One rank of this host while it runs."""

    events: GrowingFile
    limit: float
    """Seconds that it may be silent in what it does now."""
    died_late: bool = False
    """Whether its death was seen after somebody had broken."""

    def read_events(self) -> bool:
        """Bring this up to what the rank has written; whether there was anything."""
        lines = self.events.new_lines()
        for line in lines:
            self._apply(json.loads(line))
        return bool(lines)

    def _apply(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "hello":
            self.pid, self.host = event["pid"], event["host"]
        elif kind == "joined":
            self.joined = True
        elif kind in ("begin", "prepare"):
            self.current, self.step = event["name"], None
            self.limit = event.get("limit", self.limit)
        elif kind == "step":
            self.step = event["step"]
            self.steps += 1
        elif kind == "done":
            self.measured[event["name"]] = Measured(event["value"], event["seconds"])
            self.current = None
        elif kind == "failed":
            self.failure = Failure(event["type"], event["message"], event["traceback"], event["time"])
        elif kind == "finished":
            self.finished = True

    def notice_death(self, *, late: bool = False) -> None:
        """See whether the process is gone without having said why; what comes after its end is no death. It is ``late``
        where somebody has broken already, and the engine may have begun to end the others."""
        silent = not (self.finished or self.failure or self.died)
        if self.pid and silent and is_gone(self.pid):
            self.read_events()
            if not (self.finished or self.failure):
                self.died, self.died_late = time.time(), late

    def record(self, exit_code: int | None) -> RankRecord:
        """This rank as a check reads it."""
        values = {field.name: getattr(self, field.name) for field in fields(RankRecord)}
        ended_by_us = self.died_late and exit_code in (None, -signal.SIGTERM)
        return RankRecord(**{**values, "exit_code": exit_code, "died": None if ended_by_us else self.died})


def take_rank_stacks(ranks: list[RankState], folder: Path) -> str | None:
    """Fill in the ranks' stacks; where py-spy could not, the interpreter's own, and why is returned."""
    by_pid = {rank.pid: rank for rank in ranks if rank.pid}
    note = None
    for pid, stack in take_stacks(by_pid).items():
        if isinstance(stack, StacksUnavailable):
            note = str(stack)
            by_pid[pid].stack = _ours_removed(_own_stack(by_pid[pid], folder))
        else:
            by_pid[pid].stack = _ours_removed(stack)
    return note


def _own_stack(rank_state: RankState, folder: Path) -> tuple[Frame, ...]:
    try:
        os.kill(rank_state.pid, signal.SIGUSR2)
    except ProcessLookupError:
        return ()
    time.sleep(_FAULTHANDLER_SECONDS)
    return parse_faulthandler(
        rank_files.stack_file(folder, rank_state.rank).read_text(encoding="utf-8", errors="replace")
    )


def _ours_removed(stack: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The stack below the launcher's and our own frames: what a measurement called."""
    inside = [index for index, frame in enumerate(stack) if frame.file.endswith("ddpdoctor/group/worker.py")]
    return stack[inside[-1] + 1 :] if inside else stack


# -- what a run leaves in its folder ------------------------------------------------------------------------------


def log_lines(folder: Path) -> list[str]:
    """The last lines of the engine and of each rank, without the noise."""
    last: list[str] = []
    for path in [folder / ENGINE_LOG, *sorted((folder / "output").rglob("stderr.log"))]:
        if path.exists():
            text = path.read_text(encoding="utf-8", errors="replace")
            last += [line for line in text.splitlines() if not _NOISE.search(line)][-LOG_LINES:]
    return last


def last_words(folder: Path) -> str:
    """The last line of all, or an empty text."""
    return next(iter(reversed(log_lines(folder))), "")


def rank_records(ranks: list[RankState], folder: Path) -> tuple[RankRecord, ...]:
    """The ranks of this host, and of the others where the group gathered them."""
    ended = read_json(folder / rank_files.ENDED) or {"exit_codes": {}}
    here = [rank.record(ended["exit_codes"].get(str(rank.pid))) for rank in ranks]
    ours = {rank.rank for rank in ranks}
    everything = read_json(folder / rank_files.EVERYTHING) or []
    elsewhere = [_remote(rank, values) for rank, values in enumerate(everything) if rank not in ours]
    return tuple(sorted([*here, *elsewhere], key=lambda record: record.rank))


def _remote(rank: int, gathered: dict[str, Any]) -> RankRecord:
    measured = {name: Measured(value) for name, value in gathered["measured"].items()}
    return RankRecord(rank, host=gathered["host"], measured=measured, joined=True, finished=True)


def nccl_evidence(ranks: list[RankState], folder: Path) -> tuple[Evidence, ...]:
    """What NCCL_DEBUG said, by rank; the file of a rank has its pid in its name."""
    facts = {}
    for rank in ranks:
        for path in folder.glob(f"nccl.*.{rank.pid}.log"):
            facts[rank.rank] = nccl_output.parse(path.read_text(encoding="utf-8", errors="replace"))
    return nccl_output.as_evidence(facts)
