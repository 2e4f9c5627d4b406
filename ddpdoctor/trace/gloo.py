"""How gloo ends ranks: in which call it aborted one, and which lost a peer that had finished before.

The recorder writes down when a line's first call begins, and of a later one only that it ended, so the record of a rank
that gloo aborted in it does not show it. All-reduces of two sizes meet segment by segment, and the first that is longer
than what the rank expects ends its process: that tells which of the known calls of the two ranks have met.

gloo closes a rank's connections where its process group is destroyed, and a rank that is still reading the last bytes
of the same collective then reports a lost peer. Every rank did the same, so nothing is wrong with the script.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from ddpdoctor.recorder.events.training import Backward, Collective, Forward, Parameter, Wrapper
from ddpdoctor.trace import RankTrace, Trace
from ddpdoctor.trace.loop_exits import begun
from ddpdoctor.trace.recording import Recording

SIZES = r"op\.preamble\.length <= op\.nbytes\. (?P<got>\d+) vs (?P<room>\d+)"
"""Of gloo's message: how many bytes came, and for how many there was room."""
_MIB = 1 << 20
_BUCKET_MIB = 25
"""DDP's ``bucket_cap_mb`` where none is given; its first bucket takes 1 MiB."""
_LONGEST_SEGMENT = _MIB
_INT32 = 4

Size: TypeAlias = tuple[int, int]
"""Bytes, and how many of them an element takes."""
_Call: TypeAlias = "Collective | Backward"


def aborted_calls(trace: Trace) -> dict[int, _Call]:
    """By rank that gloo aborted, an earlier call of the line in which it was; without those of which it is not certain.

    It is certain where one line alone of those that the rank has called takes what the message says. A backward stands
    for the all-reduces of its buckets.
    """
    calls = {it.rank: _aborted_call(it, trace) for it in trace.ranks if it.killed_by and it.is_victim}
    return {rank: call for rank, call in calls.items() if call is not None}


def _aborted_call(rank: RankTrace, trace: Trace) -> _Call | None:
    world_size = len(trace.ranks)
    match = next(filter(None, (re.search(SIZES, line) for line in rank.output)), None)
    recording, sender = rank.recording, trace.recorded.get((rank.rank + 1) % world_size)  # in gloo's ring
    if match is None or recording is None or sender is None:
        return None
    if any(not call.ended for call in recording.collectives):
        return None  # the record shows it
    if not all(map(_has_known_buckets, recording.wrappers)):
        return None
    sizes = int(match["got"]), int(match["room"])
    sent = {size for _, size in _all_reduces(sender)}
    known = list(_all_reduces(recording))
    fitting = {
        size
        for size in {size for _, size in known}
        if any(_overflow(rank.rank, world_size, size, other) == sizes for other in sent)
    }
    lines = {
        (call.at and call.at.place, call.operation if isinstance(call, Collective) else ""): call
        for call, size in known
        if size in fitting
    }
    call = next(iter(lines.values())) if len(lines) == 1 else None
    return call if call and _has_gone_on(call, recording) else None


def bytes_of(call: Collective) -> int | None:
    """How many a collective takes; None where its tensor was not seen."""
    size = _element_size(call.dtype or "")
    return None if call.shape is None or size is None else math.prod(call.shape) * size


def _has_gone_on(call: _Call, recording: Recording) -> bool:
    """Whether the rank has come to something else since: an asynchronous call may be under way after its end."""
    if isinstance(call, Backward):
        return True
    acts: tuple[Forward | Backward | Collective, ...]
    acts = (*recording.forwards, *recording.backwards, *recording.collectives)
    place = call.at and call.at.place
    return any(act.time > call.time and (act.at and act.at.place) != place for act in acts)


def _all_reduces(recording: Recording) -> Iterator[tuple[_Call, Size]]:
    """Those of the default group that a rank is known to call, with what each takes."""
    for call in recording.collectives:
        size, taken = _element_size(call.dtype or ""), bytes_of(call)
        if call.operation == "all_reduce" and call.group is None and size and taken:
            yield call, (taken, size)
    sizes = {size for wrapper in recording.wrappers for size in _buckets(wrapper)}
    # Of the first one it is not known where it is.
    for backward in recording.backwards or (Backward(0.0, None),):
        yield from ((backward, size) for size in sizes)


def _buckets(wrapper: Wrapper) -> Iterator[Size]:
    """What DDP's reducer all-reduces at once: before and after it has learned in which order gradients come."""
    if wrapper.ranks is not None or not _has_known_buckets(wrapper):
        return
    trained = [parameter for parameter in wrapper.parameters if parameter.requires_grad]
    cap = int((wrapper.flags.get("bucket_cap_mb") or _BUCKET_MIB) * _MIB)
    yield from _in_buckets(trained, sys.maxsize, sys.maxsize)
    yield from _in_buckets(trained, _MIB, cap)
    yield from _in_buckets(trained[::-1], _MIB, cap)
    if wrapper.flags.get("find_unused_parameters"):
        yield _INT32 * len(trained), _INT32  # which of them were used


def _has_known_buckets(wrapper: Wrapper) -> bool:
    """Whether its reducer all-reduces the gradients as they are."""
    return not wrapper.hook and not wrapper.flags.get("mixed_precision")


def _in_buckets(parameters: Iterable[Parameter], first: int, cap: int) -> Iterator[Size]:
    """As DDP does it: a bucket takes parameters of one type until it has come to its limit."""
    taken: dict[str, int] = {}
    limits: dict[str, int] = {}
    for parameter in parameters:
        size, kind = _element_size(parameter.dtype), parameter.dtype
        if size is None:
            continue
        taken[kind] = taken.get(kind, 0) + math.prod(parameter.shape) * size
        if taken[kind] >= limits.get(kind, first):
            yield taken.pop(kind), size
            limits[kind] = cap
    yield from ((left, _element_size(kind) or 1) for kind, left in taken.items())


def _element_size(dtype: str) -> int | None:
    bits = re.search(r"\d+$", dtype)
    return int(bits[0]) // 8 if bits else 1 if dtype == "bool" else None


def _overflow(rank: int, world_size: int, expected: Size, sent: Size) -> tuple[int, int] | None:
    """The first message, of what a rank all-reduces from which it receives, that is longer than what it expects by what
    it all-reduces itself, and that; None where all fit."""
    messages = zip(_segments(rank, world_size, *sent), _segments(rank, world_size, *expected), strict=False)
    return next(((got, room) for got, room in messages if got > room), None)


def _segments(rank: int, world_size: int, taken: int, element: int) -> Iterator[int]:
    """The bytes of each message that a rank receives in gloo's ring all-reduce, in their order."""
    half = -(-taken // (2 * world_size))
    segment = _up(min(half, element * (_LONGEST_SEGMENT // element)), element)
    count = _up(max(-(-taken // segment), 2 * world_size), world_size)
    chunk = count // world_size
    for begin in (rank + 2, rank + 1):  # it reduces and scatters, then gathers
        for number in range(count - 2):
            length = min(segment, taken - (begin * chunk + number) % count * segment)
            if length > 0:
                yield length


def _up(number: int, of: int) -> int:
    return -(-number // of) * of


def forgive(ranks: Sequence[RankTrace]) -> tuple[RankTrace, ...]:
    """The same ranks; those that lost their peers so, count as finished."""
    recordings = (rank.recording for rank in ranks if rank.finished and rank.recording)
    left = [it for it in recordings if it.exit and it.raised is None and it.exit.how == "returned"]
    lost = [rank for rank in ranks if not rank.finished]
    if not left or not lost or not all(_lost_at_the_end(rank, left) for rank in lost):
        return tuple(ranks)
    return tuple(
        rank if rank.finished else replace(rank, finished=True, failure=None, exit_code=0, lost_at_end=True)
        for rank in ranks
    )


def _lost_at_the_end(rank: RankTrace, left: Sequence[Recording]) -> bool:
    victim = rank.recording
    if victim is None or victim.raised is None or rank.failure is None or not rank.failure.of_a_victim:
        return False
    return all(
        begun(recording) == begun(victim)
        and issued(recording) == issued(victim)
        and (last := _last_line(recording)) is not None
        and last == (victim.raised.at and victim.raised.at.place)
        for recording in left
    )


def issued(recording: Recording) -> int:
    """How many collectives of the default group the script had issued, with the one that did not end."""
    return max((call.number or 0 for call in recording.collectives if call.group is None), default=-1)


def _last_line(recording: Recording) -> tuple[str, int | None] | None:
    """The line of the last thing that the rank did together with the others."""
    done: list[Backward | Collective] = [backward for backward in recording.backwards if backward.reduced]
    done += [call for call in recording.collectives if call.group is None]
    return at.place if done and (at := max(done, key=lambda event: event.time).at) else None
