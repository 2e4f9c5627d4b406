"""Training steps: what happened from one update of the weights to the next, put together from events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ddpdoctor.recorder.events.training import (
    Backward,
    Collective,
    DetailedStep,
    Drawn,
    Forward,
    MeanLoss,
    Progress,
)
from ddpdoctor.recorder.events.updates import Clip, OptimizerStep, SchedulerStep
from ddpdoctor.trace.record import Record


@dataclass(frozen=True)
class TrainingStep:
    """What happened from one update of the weights to the next: forwards, backwards, optimizer steps.

    Optimizers that step one after the other without a backward between them belong to one training step.
    """

    index: int
    time: float
    forwards: tuple[Forward, ...] = ()
    backwards: tuple[Backward, ...] = ()
    clips: tuple[Clip, ...] = ()
    losses: tuple[MeanLoss, ...] = ()
    draws: tuple[Drawn, ...] = ()
    optimizer_steps: tuple[OptimizerStep, ...] = ()
    schedulers: tuple[SchedulerStep, ...] = ()
    """Those stepped after this update and before the next."""
    collectives: tuple[Collective, ...] = ()
    """Those that the script itself issued, up to the optimizer's step."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds in ``data``, ``forward``, ``backward``, ``step``, ``collective``, without what was waited in them: for
    other ranks, ``waits``, and for a CPU, ``cpu_wait``; as ``total``, all between updates."""
    joined: bool = False
    """Whether a Join was active, under which ranks differ by design."""


_LISTS: dict[type, str] = {
    Forward: "forwards",
    Backward: "backwards",
    Clip: "clips",
    MeanLoss: "losses",
    Drawn: "draws",
    Collective: "collectives",
}
"""What leads to an update, and the field of a TrainingStep that holds it."""


def steps_of(record: Record) -> tuple[list[TrainingStep], TrainingStep | None, int]:
    """The training steps that were written down, what came after the last update, and how many steps there were."""
    steps: list[TrainingStep] = []
    since: dict[str, Any] = {}
    hyperparameters: dict[int, tuple[Mapping[str, Any], ...]] = {}
    for event in record.together(*_LISTS, DetailedStep, OptimizerStep, SchedulerStep):
        if isinstance(event, DetailedStep):
            since = {}
        elif isinstance(event, SchedulerStep):
            if steps and steps[-1].index == event.step:
                steps[-1] = replace(steps[-1], schedulers=(*steps[-1].schedulers, event))
        elif isinstance(event, OptimizerStep):
            known = hyperparameters.get(event.optimizer, ())
            hyperparameters[event.optimizer] = event.hyperparameters = event.hyperparameters or known
            _add(steps, event, since)
            since = {}
        elif not isinstance(event, Collective) or event.ended:
            name = _LISTS[type(event)]
            since[name] = (*since.get(name, ()), event)
    counted = max((progress.steps for progress in record.events(Progress)), default=0)
    count = max(counted, steps[-1].index + 1 if steps else 0)
    begun = _begin(since)
    return steps, None if begun is None else TrainingStep(count, begun, **since), count


def _begin(since: Mapping[str, Any]) -> float | None:
    """When the first forward or backward since the last update began."""
    events = (*since.get("forwards", ()), *since.get("backwards", ()))
    return min((event.time for event in events), default=None)


def _add(steps: list[TrainingStep], update: OptimizerStep, since: Mapping[str, Any]) -> None:
    """Put an update into its training step, with what led to it."""
    last = steps[-1] if steps else None
    if last is not None and last.index == update.step:
        more = {name: getattr(last, name) + events for name, events in since.items()}
        steps[-1] = replace(last, optimizer_steps=(*last.optimizer_steps, update), **more)
        return
    begun = _begin(since)
    began = update.time if begun is None else min(begun, update.time)
    step = TrainingStep(
        update.step, began, optimizer_steps=(update,), phases=update.phases, joined=update.joined
    )
    steps.append(replace(step, **since))
