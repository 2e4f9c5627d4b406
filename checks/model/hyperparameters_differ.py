from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ddpdoctor.check import Check
from ddpdoctor.model import Finding, Judgement, Kind, Passed, Where
from ddpdoctor.outliers import by_state
from ddpdoctor.text import plural
from ddpdoctor.trace import Trace
from ddpdoctor.trace.align import training_steps
from ddpdoctor.trace.instances import grouped
from ddpdoctor.trace.sync import Group, Update, replicas, updates


class HyperparametersDiffer(Check):
    """Optimizers of different ranks work with different hyperparameters.

    What it finds:
        A learning rate, weight decay, momentum or another value of a parameter group that differs between ranks in
        the same step; and the scheduler's line where ReduceLROnPlateau was given another loss on each rank.

    Why it matters:
        Gradients are averaged, steps are not: with equal gradients and unequal learning rates the weights drift
        apart, slowly and without an error.

    Example:
        Each rank judges the plateau by its own loss:
            scheduler = ReduceLROnPlateau(optimizer)
            scheduler.step(validation_loss)       # of this rank's shard

    Fix:
        Average what decides before it does:
            dist.all_reduce(validation_loss, op=dist.ReduceOp.AVG)
            scheduler.step(validation_loss.item())
    """

    code = "DD208"
    title = "hyperparameters are equal on every rank"
    patches = ("reduced_metric",)
    explained_by = ("DD219", "DD225")

    def examine_run(self, trace: Trace) -> Judgement:
        steps = [(group, update) for group in replicas(trace) for update in updates(group)]
        unequal = [differing for group, update in steps if (differing := _unequal(group, update))]
        optimizers = grouped(unequal, lambda differing: (tuple(differing.group), differing.update.optimizer))
        # Optimizers that got the same values got them from one place.
        causes = grouped((steps[0] for steps in optimizers), lambda first: (first.name, str(first.values)))
        return [self._differ(of_cause[0]) for of_cause in causes] or Passed(
            f"hyperparameters are equal on every rank in {plural(len(steps), 'optimizer step')}"
        )

    def _differ(self, unequal: "Unequal") -> Finding:
        update, name, values = unequal.update, unequal.name, unequal.values
        plateau = _unequal_metric(unequal.group, update.index)
        shown = ", ".join(f"{_value(value)} on rank {rank}" for rank, value in list(values.items())[:3])
        metrics = plateau[1] if plateau else {}
        return self.fail(
            f"{name} differs between ranks in step {update.index}: {shown}",
            why=(
                "The scheduler was given a different metric on each rank and decided differently. "
                if plateau
                else "It was set to a different value on each rank. "
            )
            + "Equal gradients then make unequal steps, and the weights drift apart.",
            fix="dist.all_reduce(loss, op=dist.ReduceOp.AVG)    # one number for all ranks\nscheduler.step(loss.item())"
            if plateau
            else f"value = [group[{name!r}]]\ndist.broadcast_object_list(value, src=0)    # rank 0's on every rank\n"
            f"group[{name!r}] = value[0]",
            ranks=tuple(values),
            where=plateau[0] if plateau else update.where,
            evidence=by_state(
                {
                    rank: f"step {update.index}, parameter group {unequal.number}: {name} = {_value(value)}"
                    + (f", after a metric of {metrics[rank]:.6g}" if rank in metrics else "")
                    for rank, value in values.items()
                }
            ),
            about=Kind.OPTIMIZER.of(f"optimizer {update.optimizer}"),
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


def _unequal_metric(group: Group, before: int) -> tuple[Where | None, dict[int, float]] | None:
    """The last scheduler step ahead of this training step that was given unequal numbers."""
    unequal = None
    for index, row in training_steps(group):
        if index >= before:
            break
        for steps in zip(*(step.schedulers for step in row.values()), strict=False):
            metrics = {
                rank: called.metric
                for rank, called in zip(row, steps, strict=True)
                if called.metric is not None
            }
            if len(metrics) == len(row) and len(set(metrics.values())) > 1:
                unequal = (steps[0].at, metrics)
    return unequal


def _value(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
