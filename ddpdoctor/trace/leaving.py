"""Who has left a loop that others still go on with: by their batches, or by a decision of their own."""

from __future__ import annotations

from collections.abc import Mapping

from ddpdoctor.model import Where
from ddpdoctor.trace.data import Pass
from ddpdoctor.trace.loops import shares_loop
from ddpdoctor.trace.recording import Recording

Places = Mapping[int, Where | None]
"""Where ranks were seen to be, besides what their records tell."""


def left_a_loop(seen: Mapping[int, Recording], rank: int, places: Places | None = None) -> bool:
    """Whether a rank has done with a loop over data, or with training, that others still went on with."""
    others = [one for at, one in seen.items() if at != rank]
    own, last = seen[rank], last_pass(seen[rank])
    if last is not None and last.ended == "left" and any(_goes_on(last, last_pass(one)) for one in others):
        return True
    # The rank that waits stands in a step that it has begun, so it may be ahead by the one it did not end.
    return _is_done(own, (places or {}).get(rank)) and any(begun(one) > begun(own) for one in others)


def ran_out(seen: Mapping[int, Recording], rank: int) -> bool:
    """Whether a rank has come to the end of its batches in a pass in which others have drawn more."""
    last = last_pass(seen[rank])
    if last is None or last.ended != "exhausted":
        return False
    others = (last_pass(one) for at, one in seen.items() if at != rank)
    return any(_goes_on(last, other) for other in others)


def _goes_on(left: Pass, other: Pass | None) -> bool:
    """Whether another rank took more batches of the pass that one left."""
    return other is not None and other.number == left.number and other.drawn > left.drawn


def _is_done(recording: Recording, place: Where | None) -> bool:
    """Whether it will not train again: it came to its end, or waits for the others behind the loop."""
    update = next((step.optimizer_steps[-1].at for step in recording.steps if step.optimizer_steps), None)
    if recording.raised is not None:
        return _is_behind(update, recording.raised.at)
    if any(event.action == "destroy" for event in recording.groups):
        return True
    if place is not None:
        return _is_behind(update, place)
    if open_call := next((one for one in recording.collectives if not one.ended), None):
        return _is_behind(update, open_call.at)
    ended = recording.exit
    return ended is not None and (ended.how == "returned" or _is_behind(update, ended.at))


def _is_behind(update: Where | None, other: Where | None) -> bool:
    """Whether a line is outside of the training loop."""
    if update is None or other is None:
        return False
    in_main_module = other.function == "<module>" != update.function
    return in_main_module or shares_loop(update, other) is False


def begun(recording: Recording) -> int:
    """Training steps, with the one that was begun."""
    forwards = [one for one in recording.trailing.forwards if one.grad] if recording.trailing else []
    count = recording.step_count or len(recording.steps)
    return count + bool(forwards)


def last_pass(recording: Recording) -> Pass | None:
    """The last one in which an optimizer stepped."""
    trained = [one for one in recording.passes if one.training]
    return trained[-1] if trained else None


def loop_of(recording: Recording) -> Where | None:
    """The loop that was left; without a DataLoader, the last update."""
    last = last_pass(recording)
    if last is not None and last.at is not None:
        return last.at
    return recording.steps[-1].optimizer_steps[-1].at if recording.steps else None
