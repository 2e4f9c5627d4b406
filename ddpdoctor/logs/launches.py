"""Several launches in one output: the last one is judged, where it tells of something."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ddpdoctor.logs.log import Line, Log

WORDS = ("Setting OMP_NUM_THREADS", "ChildFailedError", "SignalException", "$ ", "+ ")
"""Words of the lines by which a launch begins or ends."""

_BEGINS = re.compile(
    r"Setting OMP_NUM_THREADS environment variable for each process"
    r"|^\S{0,80}[$+] (?:\S+=\S+ )*"
    r"(?:torchrun|srun|accelerate launch|deepspeed|python3? .{0,80}(?:torch\.distributed|\.py))\b"
)
_ENDS = re.compile(r"(?:^|\.)(?:ChildFailedError|SignalException)\b")


@dataclass
class Launches:
    """Fed with lines; notes where a launch begins after one that has ended."""

    ended: bool = False
    begins: int = 0
    """The place of the last such beginning; 0 where there is one launch only."""

    def feed(self, line: Line) -> None:
        """Take one line."""
        if _ENDS.search(line.text):
            self.ended = True
        elif self.ended and _BEGINS.search(line.text):
            self.ended, self.begins = False, line.position


def last_launch(log: Log, begins: int) -> Log:
    """What the last launch says; all of it where that one says nothing of how it went."""
    if not begins:
        return log
    last = replace(
        log,
        lines=tuple(item for item in log.lines if item.position >= begins),
        raised=tuple(item for item in log.raised if item.line.position >= begins),
        ended=tuple(item for item in log.ended if item.line.position >= begins),
        waits=tuple(item for item in log.waits if item.line.position >= begins),
        progress=tuple(item for item in log.progress if item.line.position >= begins),
        training=tuple(item for item in log.training if item.position >= begins),
        hung=log.hung if log.hung and log.hung.position >= begins else None,
    )
    return last if last.failed or last.training or last.hung else log
