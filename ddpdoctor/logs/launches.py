"""Several launches in one output: the last one is judged, where it tells of something."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ddpdoctor import failures
from ddpdoctor.logs.log import Ended, Line, Log
from ddpdoctor.recorder.launchers import PROGRAMS, Numbering

_BEGINS = re.compile(
    r"Setting OMP_NUM_THREADS environment variable for each process"
    r"|^\S{0,80}[$+] (?:\S+=\S+ )*"
    rf"(?:{'|'.join(PROGRAMS)}|python3? .{{0,80}}(?:torch\.distributed|\.py))\b"
)
_OF_LAUNCHER = re.compile(r"Setting OMP_NUM_THREADS|ChildFailedError|SignalException")
_SUCCEEDED = re.compile(r"\] worker group successfully finished\b")
_ENDS = re.compile(r"(?:^|\.)(?:ChildFailedError|SignalException)\b")
WORDS = ("$ ", "+ ", *failures.words(_OF_LAUNCHER.pattern, _SUCCEEDED.pattern))
"""Words of the lines by which a launch begins or ends."""


@dataclass
class Launches:
    """Fed with lines; notes where a launch begins after one that has ended."""

    ended: bool = False
    begins: int = 0
    """The place of the last such beginning; 0 where there is one launch only."""
    succeeded: Line | None = None
    """The last line of an agent of torchrun whose ranks all ended well."""
    by_tasks: bool = False
    """Whether tasks of srun or mpirun are launchers, so that their numbers are those of nodes."""

    def feed(self, line: Line) -> None:
        """Take one line."""
        of_task = line.numbering is Numbering.TASK
        self.succeeded = line if _SUCCEEDED.search(line.text) else self.succeeded
        self.by_tasks |= of_task and _OF_LAUNCHER.search(line.text) is not None
        if _ENDS.search(line.text):
            self.ended = True
        elif self.ended and _BEGINS.search(line.text):
            self.ended, self.begins = False, line.position


def of_ranks(ended: Collection[Ended]) -> Iterator[Ended]:
    """The ends where tasks are launchers: without the statuses by which tasks pass on that a rank had failed."""
    of_rank = any(end.local_rank is not None for end in ended)
    for end in ended:
        if end.local_rank is not None:
            yield end
        elif end.code < 0 or not of_rank:
            yield replace(end, rank=None)


def with_ranks(log: Log, by_tasks: bool) -> Log:
    """The log, in which no number of a task that is a launcher stands for a rank, and no local rank on another node."""
    ranks = _Ranks(log, by_tasks)
    if not (by_tasks or ranks.elsewhere):
        return log
    raised = (
        replace(item, line=ranks.numbered(item.line), rank=ranks.of(item.line, failed=True))
        if item.rank == item.line.rank
        else item
        for item in log.raised
    )
    return replace(
        log,
        lines=tuple(map(ranks.numbered, log.lines)),
        raised=tuple(raised),
        progress=tuple(replace(bar, line=ranks.numbered(bar.line)) for bar in log.progress),
        training=tuple(map(ranks.numbered, log.training)),
    )


class _Ranks:
    """The ranks behind the numbers of labels, by what torchrun tells of local ranks and ranks."""

    def __init__(self, log: Log, by_tasks: bool) -> None:
        self._by_tasks = by_tasks
        self._firsts: dict[str, set[int]] = {}
        """By file, the first ranks of the nodes that wrote to it."""
        self._failed: dict[tuple[str, int], set[int]] = {}
        for end in log.ended:
            if end.rank is None or end.local_rank is None:
                continue
            self._firsts.setdefault(end.line.file, set()).add(end.rank - end.local_rank)
            if end.code > 0 and end.pid not in log.stopped:
                self._failed.setdefault((end.line.file, end.local_rank), set()).add(end.rank)
        self.elsewhere = any(firsts != {0} for firsts in self._firsts.values())

    def of(self, line: Line, *, failed: bool = False) -> int | None:
        """The rank that wrote a line: of several nodes' the one that failed, where the line tells of a failure."""
        if line.rank is None or line.numbering is Numbering.RANK:
            return line.rank
        if line.numbering is Numbering.TASK:
            return None if self._by_tasks else line.rank
        firsts = self._firsts.get(line.file, {0})
        ranks = self._failed.get((line.file, line.rank), set()) if failed and len(firsts) > 1 else set()
        ranks = ranks or {first + line.rank for first in firsts}
        return next(iter(ranks)) if len(ranks) == 1 else line.rank

    def numbered(self, line: Line) -> Line:
        """The line with its rank."""
        return replace(line, rank=self.of(line))


def last_launch(log: Log, begins: int) -> Log:
    """What the last launch says; all of it where that one says nothing of how it went."""
    if not begins:
        return log
    kept: dict[str, Any] = {
        name: tuple(item for item in getattr(log, name) if getattr(item, "line", item).position >= begins)
        for name in ("lines", "raised", "ended", "waits", "progress", "training")
    }
    last = replace(log, hung=log.hung if log.hung and log.hung.position >= begins else None, **kept)
    return last if last.failed or last.training or last.hung else log
