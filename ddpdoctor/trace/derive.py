"""What follows from facts of several areas, once all of them were read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ddpdoctor.trace import Shortened
from ddpdoctor.trace.data import Pass
from ddpdoctor.trace.recording import Recording


def derive(recording: Recording) -> Recording:
    """With the passes that train or evaluate told apart, and without what torch.save wrote among the files."""
    passes = tuple(_judged(loader_pass, recording) for loader_pass in recording.passes)
    saved = {save.path for save in recording.saves}
    files = tuple(file for file in recording.files if file.action != "write" or file.path not in saved)
    return replace(recording, passes=passes, files=files)


def _judged(one: Pass, recording: Recording) -> Pass:
    end = recording.last if one.end is None else one.end
    steps = (*recording.steps, *((recording.trailing,) if recording.trailing else ()))
    updates = (taken.time for step in recording.steps for taken in step.optimizer_steps)
    training = one.training or any(one.begin <= time <= end for time in updates)
    forwards = (forward for step in steps for forward in step.forwards if one.begin <= forward.time <= end)
    evaluation = not training and any(not forward.grad or not forward.training for forward in forwards)
    return replace(one, training=training, evaluation=evaluation)


def shortened(recordings: Iterable[Recording], batches: int) -> Shortened | None:
    """How a run was cut short; None where no rank's was.

    Args:
        recordings: of every rank.
        batches: what fast-forward gave to a pass.
    """
    known = list(recordings)
    passes = max((sum(one.ended == "shortened" for one in own.passes) for own in known), default=0)
    ended = [own.step_count for own in known if own.exit is not None and own.exit.how == "shortened"]
    return Shortened(batches, passes, max(ended, default=None)) if passes or ended else None
