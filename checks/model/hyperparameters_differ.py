import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ddpdoctor.check import Check, Finding, Findings, Kind, Passed, Where
from ddpdoctor.recorder.events.updates import SchedulerStep
from ddpdoctor.text import by_state, plural
from ddpdoctor.trace import Trace, grouped, made_at, shown_at
from ddpdoctor.trace.joint_training import restored_alike, training_steps
from ddpdoctor.trace.source_causes import hyperparameter_set
from ddpdoctor.trace.sync import Group, Update, replicas, updates
from ddpdoctor.unreached.values import set_apart

_ROUNDING = 1e-5
"""Relative; a GPU computes one evaluation on two ranks with sums in another order."""


class HyperparametersDiffer(Check):
    """Optimizers of different ranks work with different hyperparameters.

    What it finds:
        A learning rate, weight decay, momentum or another value of a parameter group that differs between ranks in
        the same step; and the scheduler's line where ReduceLROnPlateau was given another loss on each rank, also
        where the rates have not diverged yet (a warning).

    Why it matters:
        Gradients are averaged, steps are not: with equal gradients and unequal learning rates the weights drift
        apart, slowly and without an error.

    Example:
        Each rank judges the plateau by its own loss:
            scheduler = ReduceLROnPlateau(optimizer)
            scheduler.step(validation_loss)       # of this rank's shard

    Fix:
        Average what decides before it does:
            dist.all_reduce(validation_loss)
            scheduler.step(validation_loss.item() / dist.get_world_size())
        Or give every rank the value of rank 0:
            value = [group["lr"]]
            dist.broadcast_object_list(value, src=0)
    """

    code = "DD208"
    title = "hyperparameters are equal on every rank"
    unreached = (set_apart, "each rank would set {what} of its optimizer by itself: {why}")
    explained_by = ("DD219", "DD225")

    def examine_run(self, trace: Trace) -> Findings:
        steps = [(group, update) for group in replicas(trace) for update in updates(group)]
        unequal = [differing for group, update in steps if (differing := _unequal(group, update))]
        optimizers = grouped(unequal, lambda differing: (tuple(differing.group), differing.update.optimizer))
        # Optimizers that got the same values got them from one place.
        causes = grouped((steps[0] for steps in optimizers), lambda first: (first.name, str(first.values)))
        if causes:
            yield from [self._differ(of_cause[0]) for of_cause in causes]
            return
        plateaus = [
            plateau
            for group in replicas(trace)
            if (plateau := _unequal_metric(group, math.inf)) and not _is_settled(group, plateau[0])
        ]
        for called, metrics in plateaus:
            shown = ", ".join(f"{value:.6g} on rank {rank}" for rank, value in list(metrics.items())[:3])
            yield self.warn(
                f"{called.name} is given a different metric on each rank: {shown}",
                why="The rates are still equal. Once one rank's metric improves where another's does not, their "
                "schedulers decide differently, and with unequal rates the weights drift apart.",
                where=called.at,
                evidence={rank: f"metric {value:.6g}" for rank, value in metrics.items()},
            )
        yield Passed(f"hyperparameters are equal on every rank in {plural(len(steps), 'optimizer step')}")

    def _differ(self, unequal: "Unequal") -> Finding:
        update, name, values = unequal.update, unequal.name, unequal.values
        plateau = _unequal_metric(unequal.group, update.index)
        shown = ", ".join(f"{_value(value)} on rank {rank}" for rank, value in list(values.items())[:3])
        metrics = plateau[1] if plateau else {}
        return self.fail(
            f"{name} differs between ranks in step {update.index}: {shown}",
            where=plateau[0].at if plateau else _set_at(unequal),
            evidence=by_state(
                {
                    rank: f"step {update.index}, parameter group {unequal.number}: {name} = {_value(value)}"
                    + (f", after a metric of {metrics[rank]:.6g}" if rank in metrics else "")
                    for rank, value in values.items()
                }
            )
            + shown_at("updated", update.where),
            about=Kind.OPTIMIZER.of(f"optimizer {update.optimizer}"),
            explained_by=() if restored_alike(unequal.group) else ("DD405",),
        )


@dataclass(frozen=True)
class Unequal:
    """A hyperparameter of which ranks have different values in an update."""

    group: Group
    update: Update
    number: int
    """Of the parameter group."""
    name: str
    values: Mapping[int, Any]


def _unequal(group: Group, update: Update) -> Unequal | None:
    """The first hyperparameter that differs; None where none does."""
    rows = {rank: step.hyperparameters for rank, step in update.taken.items()}
    for number in range(min(len(groups) for groups in rows.values())):
        names = set.intersection(*(set(groups[number]) for groups in rows.values()))
        for name in sorted(names, key=lambda name: (name != "lr", name)):
            values = {rank: groups[number][name] for rank, groups in rows.items()}
            if len({repr(value) for value in values.values()}) > 1:
                return Unequal(group, update, number, name, values)
    return None


def _set_at(unequal: Unequal) -> Where | None:
    """Where the value was set: the optimizer's constructor, the last step of a scheduler; else where it was used."""
    update, number = unequal.update, unequal.update.optimizer
    optimizers = {rank: recording.optimizer(number) for rank, recording in unequal.group.items()}
    given = {rank: made.defaults.get(unequal.name) for rank, made in optimizers.items() if made}
    if len(given) == len(optimizers) and len({repr(value) for value in given.values()}) > 1:
        return made_at(unequal.group, number) or update.where
    steps = next(iter(unequal.group.values())).steps
    called = [call for step in steps if step.index < update.index for call in step.schedulers]
    if called and unequal.name == "lr":
        return called[-1].at
    return hyperparameter_set(next(iter(unequal.group.values())).script, unequal.name) or update.where


def _unequal_metric(group: Group, before: float) -> tuple[SchedulerStep, dict[int, float]] | None:
    """The last scheduler step ahead of this training step that was given unequal numbers."""
    unequal = None
    for index, row in training_steps(group):
        if index >= before:
            break
        for steps in zip(*(step.schedulers for step in row.values()), strict=False):
            metrics = {rank: it.metric for rank, it in zip(row, steps, strict=True) if it.metric is not None}
            if len(metrics) == len(row) and _differ_by_more_than_rounding(metrics.values()):
                unequal = (steps[0], metrics)
    return unequal


def _is_settled(group: Group, called: SchedulerStep) -> bool:
    """Whether ranks exchange something before the next training step: then one may send its rate to all."""
    recording = next(iter(group.values()))
    times = (it.time for it in recording.forwards if recording.learns(it))
    following = min((time for time in times if time > called.time), default=math.inf)
    return any(
        called.time < call.time < following and not call.operation.endswith("barrier")
        for call in recording.collectives
    )


def _differ_by_more_than_rounding(values: Iterable[float]) -> bool:
    return any(not math.isclose(value, other, rel_tol=_ROUNDING) for value, other in pairwise(values))


def _value(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
