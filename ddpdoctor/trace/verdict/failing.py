"""Ranks that have failed, and wait for the others before their exception can end them (DD304)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ddpdoctor.blame.failure import Failure
from ddpdoctor.blame.frames import Frame, function, is_of_script, where_of
from ddpdoctor.blame.place import Kind
from ddpdoctor.blame.standstill import Handled, Standstill
from ddpdoctor.hang.verdict import Verdict
from ddpdoctor.redact import quote
from ddpdoctor.text import ranks_phrase, shorten
from ddpdoctor.trace.handling import Way, way_of
from ddpdoctor.trace.leaving import last_update
from ddpdoctor.trace.loops import is_behind, name_of, share_a_loop
from ddpdoctor.trace.odd import by_state
from ddpdoctor.trace.verdict.standing import Standing
from ddpdoctor.trace.verdict.words import evidence, they, waiting_in

Crowd = Mapping[int, Standing]


def failing(crowd: Crowd, standstill: Standstill) -> Verdict | None:
    """Whether some ranks, which all others wait for, have raised; None also where that is not sure."""
    failed = {rank: one.process.handles for rank, one in crowd.items() if one.process and one.process.handles}
    sure = all(one.waits for one in crowd.values()) and all(map(_is_on_its_way_out, map(crowd.get, failed)))
    if not failed or len(failed) == len(crowd) or not sure:
        return None
    ranks, waiting = sorted(failed), [rank for rank in crowd if rank not in failed]
    first, one = failed[ranks[0]], crowd[ranks[0]]
    where = where_of(first.frames[-1]) if first.frames else one.where
    return Verdict(
        "DD304",
        f"{ranks_phrase(ranks)} failed with {_what(first)} and {they(ranks, 'waits', 'wait')} in "
        f"{waiting_in(crowd, ranks)}, while {ranks_phrase(waiting)} {they(waiting, 'waits', 'wait')} in "
        f"{waiting_in(crowd, waiting)}",
        why=f"The exception has not ended {ranks_phrase(ranks)}: the `finally` or `except` that it came to waits in "
        f"{one.place.what if one.place else 'a collective'} first, which the others do not join. Its traceback shows "
        "at the timeout of the process group, if ever.",
        fix="look at the line named here; and call no collective where an exception may be under way:\n"
        "train()\ndist.barrier()     # behind the work, not in its finally\ndist.destroy_process_group()",
        culprits=tuple(ranks),
        waiting=tuple(waiting),
        where=where,
        evidence=(
            *by_state({rank: shorten(f"{one.type}: {one.message}", 200) for rank, one in failed.items()}),
            *evidence(crowd, standstill),
        ),
    )


def _what(one: Handled) -> str:
    return one.type + (f" {quote(shorten(one.message))}" if one.message else "")


def _is_on_its_way_out(one: Standing | None) -> bool:
    """Whether its exception ended its work, and is not what it works on with, as who finds no checkpoint does."""
    process = one.process if one else None
    if one is None or process is None or process.handles is None or one.place is None:
        return False
    found = process.handles
    said = Failure(found.type, found.message, "", 0.0)
    if one.place.kind not in (Kind.COLLECTIVE, Kind.DESTROY) or said.of_a_victim:
        return False
    inside = _since(process.stack, found.holder)
    if inside is None:
        return False
    way = way_of(found.holder.file, found.holder.line, found.tried.line)
    if way is Way.GOES_ON:
        return True
    update = last_update(one.recording) if one.recording else None
    if way is not Way.MAY_END or update is None:
        return False
    trains = any(function(frame) == name_of(update) for frame in inside if is_of_script(frame))
    came = any(share_a_loop(update, where_of(frame)) for frame in found.frames)
    return came and not trains and is_behind(update, where_of(found.holder))


def _since(stack: Sequence[Frame], holder: Frame) -> Sequence[Frame] | None:
    """The frames below the one that handles it; None where that is not on the stack."""
    found = next((number for number, one in enumerate(stack) if _same(one, holder)), None)
    return None if found is None else stack[found + 1 :]


def _same(one: Frame, other: Frame) -> bool:
    """Whether two looks, which name files and functions in ways of their own, saw one place."""
    name = Path(one.file).name == Path(other.file).name
    return name and one.line == other.line and function(one) == function(other)
