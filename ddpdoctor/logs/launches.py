"""Several launches in one output: the last one is judged, where it tells of something."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ddpdoctor.logs.log import Ended, Line, Log

WORDS = ("Setting OMP_NUM_THREADS", "ChildFailedError", "SignalException", "$ ", "+ ")
"""Words of the lines by which a launch begins or ends."""

_BEGINS = re.compile(
    r"Setting OMP_NUM_THREADS environment variable for each process"
    r"|^\S{0,80}[$+] (?:\S+=\S+ )*"
    r"(?:torchrun|srun|accelerate launch|deepspeed|python3? .{0,80}(?:torch\.distributed|\.py))\b"
)
_OF_LAUNCHER = re.compile(r"Setting OMP_NUM_THREADS|ChildFailedError|SignalException")
_ENDS = re.compile(r"(?:^|\.)(?:ChildFailedError|SignalException)\b")


@dataclass
class Launches:
    """Fed with lines; notes where a launch begins after one that has ended."""

    ended: bool = False
    begins: int = 0
    """The place of the last such beginning; 0 where there is one launch only."""
    by_tasks: bool = False
    """Whether tasks of srun or mpirun are launchers, so that their numbers are those of nodes."""

    def feed(self, line: Line) -> None:
        """Take one line."""
        self.by_tasks |= line.by_task and _OF_LAUNCHER.search(line.text) is not None
        if _ENDS.search(line.text):
            self.ended = True
        elif self.ended and _BEGINS.search(line.text):
            self.ended, self.begins = False, line.position


def of_ranks(ended: Iterable[Ended]) -> Iterator[Ended]:
    """The ends where tasks are launchers: without the statuses by which tasks pass on that a rank had failed."""
    for end in ended:
        if end.local_rank is not None:
            yield end
        elif end.code < 0:
            yield replace(end, rank=None)


def without_tasks(log: Log) -> Log:
    """The log, in which the number of a task is no rank."""
    raised = (
        replace(item, line=_of_no_task(item.line), rank=None if item.line.by_task else item.rank)
        for item in log.raised
    )
    return replace(
        log,
        lines=tuple(map(_of_no_task, log.lines)),
        raised=tuple(raised),
        progress=tuple(replace(bar, line=_of_no_task(bar.line)) for bar in log.progress),
        training=tuple(map(_of_no_task, log.training)),
    )


def _of_no_task(line: Line) -> Line:
    return replace(line, rank=None) if line.by_task else line


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
