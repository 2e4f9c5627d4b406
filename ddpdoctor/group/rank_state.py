"""What the command knows of one rank while it runs: its events, its process, its stack."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ddpdoctor.blame.failure import Failure
from ddpdoctor.blame.frames import Frame, parse_faulthandler
from ddpdoctor.files import GrowingFile
from ddpdoctor.group import rank_files
from ddpdoctor.group.group_record import Measured, RankRecord
from ddpdoctor.hang.stacks import StacksUnavailable, take_stacks
from ddpdoctor.host.proc import is_gone

_FAULTHANDLER_SECONDS = 0.3


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
        """See whether the process is gone without having said why; what comes after its end is no death.

        Args:
            late: somebody has broken already, and the engine may have begun to end the others.
        """
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
