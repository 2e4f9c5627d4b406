"""Whether an exception that a rank handles while it waits ended its work."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ddpdoctor.blame.frames import Frame, function, is_of_script, where_of
from ddpdoctor.blame.place import PlaceKind
from ddpdoctor.blame.rank_state import RankState
from ddpdoctor.failures import VICTIM, says
from ddpdoctor.program import Program
from ddpdoctor.program.handlers import Way, way_of
from ddpdoctor.trace.loop_exits import last_update, name_of
from ddpdoctor.trace.recording import Recording


def ends_its_work(state: RankState, recording: Recording | None) -> bool:
    """Whether the exception that a rank handles ended its work, and is not what it works on with, as one does that
    finds no checkpoint."""
    process = state.process
    if process is None or process.handles is None or state.place is None:
        return False
    handled = process.handles
    in_collective = state.place.kind in (PlaceKind.COLLECTIVE, PlaceKind.DESTROY)
    if not in_collective or says(f"{handled.type}: {handled.message}", *VICTIM):
        return False
    inside = _since(process.stack, handled.holder)
    if inside is None:
        return False
    way = way_of(handled.holder.file, handled.holder.line, handled.tried.line)
    if way is Way.GOES_ON:
        return True
    update = last_update(recording) if recording else None
    if way is not Way.MAY_END or update is None:
        return False
    loops = Program.holding(update, recording.script if recording else "").loops
    trains = any(function(frame) == name_of(update) for frame in inside if is_of_script(frame))
    came = any(loops.share_a_loop(update, where_of(frame)) for frame in handled.frames)
    return came and not trains and loops.is_behind(update, where_of(handled.holder))


def _since(stack: Sequence[Frame], holder: Frame) -> Sequence[Frame] | None:
    """The frames below the one that handles it; None where that is not on the stack."""
    position = next((number for number, frame in enumerate(stack) if _same(frame, holder)), None)
    return None if position is None else stack[position + 1 :]


def _same(frame: Frame, other: Frame) -> bool:
    """Whether two looks, which name files and functions in ways of their own, saw one place."""
    name = Path(frame.file).name == Path(other.file).name
    return name and frame.line == other.line and function(frame) == function(other)
