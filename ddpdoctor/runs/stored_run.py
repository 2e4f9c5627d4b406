"""A run as its folder tells of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple


class Step(NamedTuple):
    """A step that was logged; None where its line has no such number."""

    step: int
    epoch: int | None = None
    loss: float | None = None
    lr: float | None = None
    grad_norm: float | None = None
    samples: float | None = None
    """Of all ranks, since the run began."""
    samples_per_second: float | None = None
    """Of all ranks."""
    seconds: float | None = None
    """That the steps of this line took."""
    memory_bytes: float | None = None


class Evaluation(NamedTuple):
    """An evaluation that was logged."""

    step: int
    evaluation_loss: float | None = None
    evaluation_accuracy: float | None = None


@dataclass(frozen=True)
class Run:
    """One run."""

    folder: Path
    name: str
    """Of its folder, by which commands take it."""
    title: str = ""
    """The name that its configuration gives it."""
    status: str = "unknown"
    started: datetime | None = None
    finished: datetime | None = None
    command: tuple[str, ...] = ()
    world_size: int | None = None
    device: str = ""
    backend: str = ""
    torch: str = ""
    planned_steps: int | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    """In order; of a step that was made again after a resume, the last."""
    evaluations: tuple[Evaluation, ...] = ()
    checkpoints: tuple[int, ...] = ()
    """The steps after which one was saved."""
    problems: tuple[str, ...] = ()
    """What could not be read."""

    def series(self, metric: str) -> list[tuple[int, float]]:
        """The values of one metric by step."""
        points = self.evaluations if metric.startswith("evaluation") else self.steps
        pairs = ((point.step, getattr(point, metric)) for point in points)
        return [(step, value) for step, value in pairs if value is not None]
