"""Who has left a loop that others still go on with: by their batches, or by a decision of their own."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ddpdoctor.blame.causes import LeftBackwardOut, LeftLoop, LeftStepsOut
from ddpdoctor.model import Where
from ddpdoctor.recorder.events.training import Backward, Forward
from ddpdoctor.trace.data import Pass
from ddpdoctor.trace.loops import is_behind, way_out, way_past
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.training import TrainingStep

Places = Mapping[int, Where | None]
"""Where ranks were seen to be, besides what their records tell."""
_TO_ITS_END = ("exhausted", "shortened")


def leavers(seen: Mapping[int, Recording], places: Places | None = None) -> list[int]:
    """The ranks that have done with a loop over data, or with training, that others still went on with."""
    furthest, most = _furthest(seen), max(map(begun, seen.values()), default=0)
    return [
        rank
        for rank, recording in seen.items()
        if _is_behind_in_pass(recording, furthest, "left")
        # The rank that waits stands in a step that it has begun, so it may be ahead by the one it did not end.
        or (begun(recording) < most and _is_done(recording, (places or {}).get(rank)))
    ]


def out_of_batches(seen: Mapping[int, Recording]) -> list[int]:
    """The ranks that have come to the end of their batches in a pass in which others have drawn more."""
    furthest = _furthest(seen)
    return [rank for rank, recording in seen.items() if _is_behind_in_pass(recording, furthest, "exhausted")]


def _furthest(seen: Mapping[int, Recording]) -> dict[int, int]:
    """The most batches that a rank took of the last pass that it made, by the number of the pass."""
    found: dict[int, int] = {}
    for last in filter(None, map(last_pass, seen.values())):
        found[last.number] = max(last.drawn, found.get(last.number, 0))
    return found


def _is_behind_in_pass(recording: Recording, furthest: Mapping[int, int], ended: str) -> bool:
    last = last_pass(recording)
    return last is not None and last.ended == ended and last.drawn < furthest[last.number]


def _is_done(recording: Recording, place: Where | None) -> bool:
    """Whether it will not train again: it came to its end, or waits for the others behind the loop."""
    update = last_update(recording)
    if recording.raised is not None:
        return is_behind(update, recording.raised.at)
    if any(event.action == "destroy" for event in recording.groups):
        return True
    if place is not None:
        return is_behind(update, place)
    if open_call := next((collective for collective in recording.collectives if not collective.ended), None):
        return is_behind(update, open_call.at)
    ended = recording.exit
    return ended is not None and (ended.how == "returned" or is_behind(update, ended.at))


def last_update(recording: Recording) -> Where | None:
    """A line that updates the weights."""
    return next((step.optimizer_steps[-1].at for step in recording.steps if step.optimizer_steps), None)


def loop_left(
    seen: Mapping[int, Recording], ranks: Sequence[int], place: Where | None = None
) -> LeftLoop | LeftStepsOut:
    """How these ranks, which :func:`leavers` named, came to leave: before the end of the loop, or past some steps.

    Args:
        place: where the first of them was seen to be since.
    """
    first = seen[ranks[0]]
    if fewer := _left_out(seen, ranks[0]):
        return LeftStepsOut(culprits=tuple(ranks), fewer=fewer, where=_left_out_at(first))
    return LeftLoop(culprits=tuple(ranks), steps=steps_of(first), where=_left_at(first, place))


def backward_left_out(seen: Mapping[int, Recording], ranks: Sequence[int]) -> LeftBackwardOut:
    """Which backward these ranks, which :func:`skippers` named, left out."""
    first = seen[ranks[0]]
    step = _skipped_step(first)
    return LeftBackwardOut(culprits=tuple(ranks), step=step.index if step else None, where=_skipped_at(first))


def skippers(seen: Mapping[int, Recording], inside: Collection[int] = ()) -> list[int]:
    """The ranks that went forward as often as the others, and backward less often.

    Args:
        inside: ranks that were seen to stand in a backward, which their records have not yet.
    """
    if any(recording.step_count > len(recording.steps) for recording in seen.values()):
        return []
    forwards = {rank: len(forwards_of(recording)) for rank, recording in seen.items()}
    backwards = {rank: len(backwards_of(recording)) + (rank in inside) for rank, recording in seen.items()}
    most = max(backwards.values())
    return [
        rank
        for rank in seen
        if backwards[rank] < most and forwards[rank] >= max(forwards.values()) and _skipped_step(seen[rank])
    ]


def _skipped_step(recording: Recording) -> TrainingStep | None:
    """The first step with a forward more than backwards, behind which the rank went on."""
    return next((s for s in _steps(recording) if sum(f.grad for f in s.forwards) > len(s.backwards)), None)


def _skipped_at(recording: Recording) -> Where | None:
    """The branch by which it left out that backward, where there is one only; else its forward."""
    step, known = _skipped_step(recording), backwards_of(recording)
    forward = step.forwards[0].at if step else None
    return way_past(forward, known[-1].at if known else None) or forward


def backwards_of(recording: Recording) -> list[Backward]:
    """Those that it wrote down."""
    return [backward for step in _steps(recording) for backward in step.backwards]


def forwards_of(recording: Recording) -> list[Forward]:
    """Those that learn, and went through the wrapper."""
    return [f for step in _steps(recording) for f in step.forwards if f.grad and not f.around]


def _steps(recording: Recording) -> tuple[TrainingStep, ...]:
    return (*recording.steps, *((recording.trailing,) if recording.trailing else ()))


def begun(recording: Recording) -> int:
    """Training steps, with the one that was begun."""
    return steps_of(recording) + is_in_a_step(recording)


def steps_of(recording: Recording) -> int:
    """Training steps that were ended."""
    return recording.step_count or len(recording.steps)


def is_in_a_step(recording: Recording) -> bool:
    """Whether it has begun a training step that it did not end."""
    return recording.trailing is not None and any(forward.grad for forward in recording.trailing.forwards)


def _left_out(seen: Mapping[int, Recording], rank: int) -> int:
    """How many training steps fewer than another a rank began in the same batches; 0 where it drew fewer."""
    last = last_pass(seen[rank])
    if last is None or last.ended not in _TO_ITS_END or last.drawn < _furthest(seen)[last.number]:
        return 0
    return max(map(begun, seen.values())) - begun(seen[rank])


def _left_out_at(recording: Recording) -> Where | None:
    """The branch by which it goes past the forward, where there is one only; else the loop."""
    last = last_pass(recording)
    loop, forward = last.at if last else None, next((one.at for one in forwards_of(recording)), None)
    return way_past(loop, forward) or loop


def last_pass(recording: Recording) -> Pass | None:
    """The last one in which an optimizer stepped."""
    trained = [loader_pass for loader_pass in recording.passes if loader_pass.training]
    return trained[-1] if trained else None


def _left_at(recording: Recording, place: Where | None = None) -> Where | None:
    """The branch by which a rank left the loop, where there is one only; else the loop, or the last update.

    Args:
        place: where it was seen to be since.
    """
    last = last_pass(recording)
    update = recording.steps[-1].optimizer_steps[-1].at if recording.steps else None
    loop = last.at if last else None
    return way_out(loop or update, place or _place_since(recording)) or loop or update


def _place_since(recording: Recording) -> Where | None:
    """Where a rank that has left its loop was last."""
    if recording.raised is not None:
        return recording.raised.at
    open_call = next((collective for collective in recording.collectives if not collective.ended), None)
    destroyed = next((group for group in recording.groups if group.action == "destroy"), None)
    known = open_call or destroyed or recording.exit
    return known.at if known else None
