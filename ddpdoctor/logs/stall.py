"""Who waited in a collective until its timeout, and who did not."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from signal import SIGTERM
from typing import Any

from ddpdoctor.blame.causes import AloneInOutput, BusyInOutput, GaveUp, LateInOutput, WorkInOutput
from ddpdoctor.check import Check
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Line, Log, Progress, Raised, Wait, log_fields
from ddpdoctor.logs.secondary_errors import waited_in_vain
from ddpdoctor.model import Confidence, Judgement, Role
from ddpdoctor.text import listing, ranks_phrase

_DEFAULT_TIMEOUTS = (1800.0, 600.0)
"""Seconds; of gloo, the store and NCCL before torch 2.2, and of NCCL since."""
_GAVE_UP = re.compile(r"(?:Timed out waiting|wait timeout after) (\d+)ms")
_TRAINING_STEPS = re.compile(r"(?i)loss|\blr=|\bepoch:? ?\d+[^|]{0,20}\d%")
_EVALUATION = re.compile(
    r"(?i)\b(?:val|valid|validat\w*|eval\w*|test\w*|predict\w*|infer\w*|generat\w*)\b[^|]{0,40}\d%"
)
_WITHOUT_WORDS = re.compile(r"\s*\d+%\|.*(?:it/s|s/it)\b")
"""A bar of iterations that says no more of them, such as that of transformers' Trainer."""
_MOST_SOURCES = 6
"""Lines on which a finding rests."""
MISSED = re.compile(
    r"[Rr]anks? (?P<ranks>\d[\d, ]*) failed to pass monitoredBarrier"
    r"|\[(?P<absent>\d[\d, ]*)\] (?:finished collective #\d+, but )?didn't join collective #(?P<next>\d+)"
    r"|\[(?P<inside>\d[\d, ]*)\] joined but didn't finish collective #(?P<open>\d+)"
    r"|ranks \[(?P<never>\d[\d, ]*)\] are the lagging ranks|^missing ranks: \{(?P<dumped>\d[\d, ]*)\}"
    r"|retrieving ncclUniqueId from \[(?P<first>\d+)\].{0,120}got error: (?:wait timeout|Socket Timeout)"
)
"""The second one is torch's own report of ranks out of step, under TORCH_NCCL_DESYNC_DEBUG; the third tells of the rank
whose first collective makes the communicator."""


@dataclass(frozen=True)
class Stall:
    """A wait that ended the job."""

    cause: GaveUp
    sources: tuple[Line | Raised, ...]
    """What tells of it, in order."""
    missing: tuple[int, ...] = ()
    """The ranks that a survivor named as missing."""


def judge_stall(check: Check, log: Log) -> Judgement:
    """The finding of a check that tells why ranks gave up; it rests on the lines that tell of it."""
    if (stall := find_stall(log)) is None or type(stall.cause) not in check.causes:
        return NOT_IN_OUTPUT
    undetermined = type(stall.cause) is GaveUp
    finding = check.report(stall.cause)
    role = Role.UNKNOWN if undetermined else Role.MESSENGER
    return [replace(finding, **log_fields(*stall.sources[:_MOST_SOURCES], role=role, ranks=finding.ranks))]


def find_stall(log: Log) -> Stall | None:
    """The wait that ended the job; None where nothing tells of one."""
    timeouts = [raised for raised in log.fatal if waited_in_vain(raised)]
    naming = [line for line in log.lines if MISSED.search(line.text) and not log.went_on_after(line)]
    sources: list[Line | Raised] = [*(wait.line for wait in log.waits), *timeouts] or [*naming]
    if not sources:
        return None
    sources.sort(key=lambda source: (source.line if isinstance(source, Raised) else source).position)
    missing = _missing(naming, log.waits)
    seconds = [wait.seconds for wait in log.waits if wait.seconds]
    seconds += [int(match[1]) / 1000 for raised in timeouts if (match := _GAVE_UP.search(raised.text))]
    limit = max(seconds, default=None)
    cause = _cause(log, timeouts, missing, limit)
    if (bar := _long_work(log, limit, cause.waiting)) is None or bar.seconds is None:
        return Stall(cause, tuple(sources), missing)
    late = cause.culprits if isinstance(cause, LateInOutput) and len(cause.culprits) == 1 else ()
    percent = 100 * bar.done // bar.total if bar.total else None
    work = WorkInOutput(
        culprits=late if bar.line.rank is None else (bar.line.rank,),
        waiting=cause.waiting,
        what=cause.what,
        seconds=limit,
        percent=percent,
        took=bar.seconds,
    )
    return Stall(replace(work, confidence=Confidence.LIKELY), (bar.line, *sources), missing)


def _cause(log: Log, timeouts: list[Raised], missing: tuple[int, ...], limit: float | None) -> GaveUp:
    """By the ranks that did not say that they waited, as far as the output tells which there are."""
    ranks = {wait.rank for wait in log.waits} | {raised.rank for raised in timeouts}
    waiting = tuple(sorted(rank for rank in ranks if rank is not None))
    named = {end.rank for end in log.ended} | {raised.rank for raised in timeouts} | {*log.reached}
    named |= _heard(log) - ranks
    known = {rank for rank in named if rank is not None}
    others_lived = len(waiting) < len(log.stopped) + len({end.pid for end in log.ended if end.pid})
    collective = all(wait.collective for wait in log.waits)
    waiting_ranks = [wait.rank for wait in log.waits if wait.rank is not None]
    one_group = len(waiting_ranks) == len({*waiting_ranks}) and len({it.group for it in log.waits} - {""}) < 2
    absent = _absent(log, waiting, known) if waiting and collective and one_group else ()
    numbers = {wait.sequence for wait in log.waits if wait.sequence is not None}
    more: dict[str, Any] = {"what": _what(log.waits), "seconds": limit}
    more["first"] = bool(numbers) and numbers <= {0, 1}
    if len(waiting) <= len(absent) and not (missing or all(wait.may_be_of_all for wait in log.waits)):
        return GaveUp(waiting=waiting, **more)  # a group of some ranks: the output does not tell its members
    few = waiting == (0,) or len(waiting) < len(absent)
    some_absent = bool(absent) or (others_lived and {*log.reached} <= {*waiting})
    in_backward = any("backward" in frame.function for raised in timeouts for frame in raised.frames)
    likely = Confidence.LIKELY
    if waiting and few and some_absent and collective and not (missing or in_backward or len(numbers) > 1):
        return AloneInOutput(culprits=waiting, confidence=likely, **more)
    # The members and the numbers of one group say nothing of another's.
    late = missing or absent or (_behind(log.waits) if one_group else ())
    if late:
        others = tuple(rank for rank in waiting if rank not in late)
        in_barrier = any("barrier" in frame.function for raised in timeouts for frame in raised.frames)
        busy = bool(others) and not missing and in_barrier and _ran_until_stopped(log, late)
        fields: dict[str, Any] = {"culprits": late, "waiting": others, "confidence": likely, **more}
        if busy:
            return BusyInOutput(**fields)
        theirs, instead = ([it for it in log.waits if (it.rank in late) is those] for those in (False, True))
        if theirs and instead:
            fields["what"] = _what(theirs)
        return LateInOutput(**fields, instead=_what(instead) if theirs and instead else "")
    return GaveUp(waiting=waiting, **more)


def _ran_until_stopped(log: Log, ranks: Iterable[int]) -> bool:
    """Whether the launcher ended these ranks, which had neither failed nor come to their end before."""
    ended = {end.rank: end.code for end in log.ended}
    return bool(log.stopped) and all(ended.get(rank, -SIGTERM) == -SIGTERM for rank in ranks)


def _what(waits: Sequence[Wait]) -> str:
    each = [*dict.fromkeys(wait.what for wait in waits)]
    if len(each) == 1:
        return each[0]
    if len({wait.group for wait in waits} - {""}) > 1:
        ranks = [[it.rank for it in waits if it.what == what and it.rank is not None] for what in each]
        named = (f"{what} ({ranks_phrase(of)})" if of else what for what, of in zip(each, ranks, strict=True))
        return f"{listing([*named])} of different groups"
    operations = {wait.operation for wait in waits if wait.operation}
    return next(iter(operations)) if len(operations) == 1 else "collectives" if operations else "a collective"


def _behind(waits: Iterable[Wait]) -> tuple[int, ...]:
    """Where a rank waits in a collective that others have not started: of those, the ones that started fewest."""
    known = [wait for wait in waits if wait.rank is not None and wait.sequence is not None]
    started = {wait.rank: wait.sequence if wait.enqueued is None else wait.enqueued for wait in known}
    latest = max((wait.sequence or 0 for wait in known), default=0)
    fewest = min((count or 0 for count in started.values()), default=latest)
    behind = (rank for rank, count in started.items() if rank is not None and count == fewest)
    return tuple(sorted(behind)) if fewest < latest else ()


def _absent(log: Log, waiting: tuple[int, ...], known: set[int]) -> tuple[int, ...]:
    """The ranks of the job that did not wait, as far as its output tells which there are."""
    spoke = {*waiting, *known} if len(waiting) > 1 else known
    if log.world_size:
        job = range(log.world_size)
    else:
        lowest = min(spoke, default=0)  # a node's ranks do not begin with 1, where several of them speak
        job = range(lowest if len(waiting) > 1 and lowest != 1 else 0, 1 + max(spoke, default=-1))
    waited_in = min((wait.sequence for wait in log.waits if wait.sequence is not None), default=None)
    came = {rank for rank, last in log.reached.items() if waited_in is not None and last >= waited_in}
    absent = tuple(rank for rank in job if rank not in waiting and rank not in came)
    return () if _are_a_node(log, waiting, absent) else absent


def _heard(log: Log) -> set[int | None]:
    """The ranks that the output says anything of."""
    lines = (*log.lines, *log.training, *(bar.line for bar in log.progress))
    return {*log.reached} | {line.rank for line in lines} | {end.rank for end in log.ended}


def _are_a_node(log: Log, waiting: tuple[int, ...], absent: tuple[int, ...]) -> bool:
    """Whether those that waited look like all ranks of one node, whose output alone this is."""
    count = len(waiting)
    block = count > 1 and waiting[-1] - waiting[0] == count - 1 and waiting[0] % count == 0
    alone = len(log.hosts) < 2 and _heard(log).isdisjoint(absent)
    return block and (count + len(absent)) % count == 0 and alone


def _missing(naming: Iterable[Line], waits: Iterable[Wait]) -> tuple[int, ...]:
    """The ranks that survivors name as missing; of those that torch's report places, the ones furthest behind."""
    behind: dict[float, set[int]] = {}
    for match in filter(None, (MISSED.search(line.text) for line in naming)):
        came = float(match["next"]) - 1 if match["next"] else float(match["open"] or 0.5) - 0.5
        ranks = next(filter(None, match.group("ranks", "absent", "inside", "never", "dumped", "first")))
        behind.setdefault(came, set()).update(map(int, re.findall(r"\d+", ranks)))
    missing = behind[min(behind)] if behind else set()
    waiting = {wait.rank for wait in waits}
    return () if waiting and missing >= waiting else tuple(sorted(missing))  # all came, if it names all


def _long_work(log: Log, limit: float | None, waiting: Collection[int]) -> Progress | None:
    """The progress bar that had run for about as long as the others waited, and was not done."""
    limits = (limit,) if limit else _DEFAULT_TIMEOUTS
    trained = any((wait.sequence or 0) > 1 for wait in log.waits)
    for bar in log.progress:
        text = bar.line.text
        # Every rank takes training steps; other work may be one rank's own, and goes on until it is stopped.
        of_training = _TRAINING_STEPS.search(text) is not None and not _EVALUATION.search(text)
        alone = bar.line.rank not in waiting and not of_training
        alone = alone and not (trained and _WITHOUT_WORDS.match(text))
        long = any(0.9 * limit <= (bar.seconds or 0.0) <= 1.2 * limit + 60 for limit in limits)
        if alone and long and (bar.done < bar.total or not bar.total):
            return bar
    return None
