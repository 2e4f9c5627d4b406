"""Who waited in a collective until its timeout, and who did not."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ddpdoctor.logs.log import Line, Log, Progress, Raised, Wait
from ddpdoctor.logs.secondary_errors import waited_in_vain

_DEFAULT_TIMEOUTS = (1800.0, 600.0)
"""Seconds; of gloo, the store and NCCL before torch 2.2, and of NCCL since."""
_GAVE_UP = re.compile(r"(?:Timed out waiting|wait timeout after) (\d+)ms")
_MISSED = re.compile(r"[Rr]anks? (?P<ranks>\d[\d, ]*) failed to pass monitoredBarrier")


@dataclass(frozen=True)
class Stall:
    """Ranks that waited until the timeout."""

    waiting: tuple[int, ...]
    """The ranks that said so."""
    absent: tuple[int, ...]
    """The ranks of the job that did not, as far as its size is known."""
    more_absent: bool
    """Whether there were more ranks than those that waited, though not which."""
    seconds: float | None
    waits: tuple[Wait, ...]
    told: tuple[Line | Raised, ...]
    """What tells of it, in order."""
    missing: tuple[int, ...] = ()
    """The ranks that a survivor named as missing."""
    in_backward: bool = False
    """Whether a traceback shows the wait to be for the average of gradients, which every rank's training has."""

    @property
    def alone(self) -> bool:
        """Whether those that waited are few: most ranks, or rank 0's peers, never came to the collective."""
        if (
            not self.waiting
            or not self.more_absent
            or self.missing
            or len(self.sequences) > 1
            or self.in_backward
        ):
            return False
        if not all(wait.collective for wait in self.waits):
            return False
        return self.waiting == (0,) or len(self.waiting) < len(self.absent)

    @property
    def sequences(self) -> frozenset[int]:
        """The numbers of the collectives that were waited in."""
        return frozenset(wait.sequence for wait in self.waits if wait.sequence is not None)

    @property
    def what(self) -> str:
        """``ALLREDUCE number 12``, or what is known of it."""
        operations = {wait.operation for wait in self.waits}
        if len(operations) != 1:
            return "collectives" if operations else "a collective"
        number = f" number {next(iter(self.sequences))}" if len(self.sequences) == 1 else ""
        return f"{next(iter(operations))}{number}"

    @property
    def for_how_long(self) -> str:
        """``for 1800 s``, or nothing where no line says it."""
        return f" for {self.seconds:.0f} s" if self.seconds else ""


def find_stall(log: Log) -> Stall | None:
    """The wait that ended the job; None where nothing tells of one."""
    vain = [one for one in log.fatal if waited_in_vain(one)]
    told: list[Line | Raised] = [*(wait.line for wait in log.waits), *vain]
    if not told:
        return None
    ranks = {wait.rank for wait in log.waits} | {one.rank for one in vain}
    waiting = tuple(sorted(rank for rank in ranks if rank is not None))
    known = [one.rank for one in log.ended] + [one.rank for one in vain] + list(log.reached)
    others_lived = len(waiting) < len(log.stopped) + len({one.pid for one in log.ended if one.pid})
    collective = waiting and all(wait.collective for wait in log.waits)
    absent = _absent(log, waiting, {rank for rank in known if rank is not None}) if collective else ()
    seconds = [wait.seconds for wait in log.waits if wait.seconds]
    seconds += [int(found[1]) / 1000 for one in vain if (found := _GAVE_UP.search(one.text))]
    return Stall(
        waiting,
        absent,
        bool(absent) or (others_lived and not log.reached),
        max(seconds) if seconds else None,
        log.waits,
        tuple(sorted(told, key=lambda one: (one.line if isinstance(one, Raised) else one).position)),
        tuple(sorted(rank for line in log.lines for rank in _named_missing(line.text))),
        any("backward" in frame.function for one in vain for frame in one.frames),
    )


def _absent(log: Log, waiting: tuple[int, ...], known: set[int]) -> tuple[int, ...]:
    """The ranks of the job that did not wait, as far as its output tells which there are."""
    spoke = {*waiting, *known} if len(waiting) > 1 else known
    if log.world_size:
        job = range(log.world_size)
    else:
        job = range(min(spoke) if len(waiting) > 1 else 0, 1 + max(spoke, default=-1))
    waited_in = min((wait.sequence for wait in log.waits if wait.sequence is not None), default=None)
    came = {rank for rank, last in log.reached.items() if waited_in is not None and last >= waited_in}
    absent = tuple(rank for rank in job if rank not in waiting and rank not in came)
    return () if _are_a_node(log, waiting, absent) else absent


def _are_a_node(log: Log, waiting: tuple[int, ...], absent: tuple[int, ...]) -> bool:
    """Whether those that waited look like all ranks of one node, whose output alone this is."""
    count = len(waiting)
    block = count > 1 and waiting[-1] - waiting[0] == count - 1 and waiting[0] % count == 0
    heard = (
        {*log.reached} | {line.rank for line in (*log.lines, *log.training)} | {one.rank for one in log.ended}
    )
    alone = len(log.hosts) < 2 and heard.isdisjoint(absent)
    return block and (count + len(absent)) % count == 0 and alone


def _named_missing(text: str) -> list[int]:
    found = _MISSED.search(text)
    return [int(rank) for rank in re.findall(r"\d+", found["ranks"])] if found else []


def long_work(log: Log, stall: Stall) -> Progress | None:
    """The progress bar that had run for about as long as the others waited, and was not done."""
    limits = (stall.seconds,) if stall.seconds else _DEFAULT_TIMEOUTS
    for bar in log.progress:
        if bar.seconds and bar.done < bar.total and any(_as_long(bar.seconds, limit) for limit in limits):
            return bar
    return None


def _as_long(seconds: float, limit: float) -> bool:
    """Whether work had run for about the time that others waited; it may go on until it is stopped."""
    return 0.9 * limit <= seconds <= 1.2 * limit + 60
