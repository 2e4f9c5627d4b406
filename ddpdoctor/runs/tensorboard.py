"""Runs as TensorBoard's event files. Needs the tensorboard package, and neither torch nor TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

from ddpdoctor.runs.run_reader import Run

_TAGS = {
    "loss": "train/loss",
    "lr": "train/learning_rate",
    "grad_norm": "train/gradient_norm",
    "samples_per_second": "speed/samples_per_second",
    "memory_bytes": "memory/bytes",
    "evaluation_loss": "evaluation/loss",
    "evaluation_accuracy": "evaluation/accuracy",
}


class NoTensorBoard(Exception):
    """The tensorboard package is not installed."""


def export(run: Run, folder: Path) -> int:
    """Write the run's metrics as one event file; how many values it has.

    Raises:
        NoTensorBoard: the package is not installed.
        OSError: the folder cannot be written.
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError as missing:
        raise NoTensorBoard(str(missing)) from None
    begun = run.started.timestamp() if run.started else 0.0
    writer = EventFileWriter(str(folder))
    written = 0
    for tag, step, seconds, value in _values(run):
        entry = Summary.Value(tag=tag, simple_value=value)
        writer.add_event(Event(wall_time=begun + seconds, step=step, summary=Summary(value=[entry])))
        written += 1
    writer.close()
    return written


def _values(run: Run) -> Iterator[tuple[str, int, float, float]]:
    """Tag, step, seconds since the run began, value."""
    passed = accumulate(point.seconds or 0.0 for point in run.steps)
    seconds = dict(zip((point.step for point in run.steps), passed, strict=True))
    for metric, tag in _TAGS.items():
        for step, value in run.series(metric):
            yield tag, step, seconds.get(step, 0.0), value
