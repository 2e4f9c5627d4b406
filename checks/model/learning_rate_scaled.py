from collections.abc import Mapping

from ddpdoctor.check import Check, Finding, Judgement, Kind, Passed
from ddpdoctor.recorder.events.updates import OptimizerStep
from ddpdoctor.text import plural
from ddpdoctor.trace import Recording, Trace
from ddpdoctor.trace.joint_training import group_size
from ddpdoctor.trace.sync import replicas

ENOUGH = 16
"""Ranks from which a learning rate that is multiplied by them leaves what optimizers bear."""
LARGEST = {"SGD": 2.0, "Adam": 0.05, "AdamW": 0.05, "NAdam": 0.05, "RAdam": 0.05, "Adamax": 0.05}
"""The largest learning rates with which these optimizers are known to begin, by a wide margin."""


class LearningRateScaled(Check):
    """The learning rate is multiplied by the number of ranks, and training begins with it.

    What it finds:
        First updates whose learning rate is a round number times the number of ranks and too large for the optimizer
        to begin with: 2 for SGD, 0.05 for Adam and similar ones, in jobs of 16 ranks or more. Rates that begin small
        and are warmed up, and rates scaled by the square root, are left alone.

    Why it matters:
        The rule to scale the rate with the batch was found for SGD with a warm-up of several epochs and up to a few
        hundred ranks. A rate of 0.001 for Adam is 0.5 on 512 ranks: the loss jumps or turns NaN in the first steps,
        on a size that nobody tried before.

    Example:
        optimizer = AdamW(model.parameters(), lr=1e-3 * dist.get_world_size())

    Fix:
        Begin small and warm up, and scale Adam by the square root at most:
            optimizer = AdamW(model.parameters(), lr=1e-3 * math.sqrt(dist.get_world_size()))
            warmup = LinearLR(optimizer, start_factor=0.01, total_iters=1000)
    """

    code = "DD230"
    title = "the initial learning rate is not too high"
    explained_by = ("DD208",)

    def examine_run(self, trace: Trace) -> Judgement:
        groups = [group for group in replicas(trace) if group_size(group) >= ENOUGH]
        self.require(groups, f"it matters from {ENOUGH} ranks on")
        return [finding for group in groups for finding in self._of_group(group)] or Passed(
            "no optimizer begins with a learning rate that grew with the number of ranks"
        )

    def _of_group(self, group: Mapping[int, Recording]) -> list[Finding]:
        ranks, first = group_size(group), next(iter(group.values()))
        names = {optimizer.index: optimizer.name for optimizer in first.optimizers}
        return [
            self._scaled(names[step.optimizer], step, rate, ranks, group)
            for step in _first_steps(first)
            if (rate := _scaled_rate(step, names.get(step.optimizer, ""), ranks)) is not None
        ]

    def _scaled(
        self, name: str, step: OptimizerStep, rate: float, ranks: int, group: Mapping[int, Recording]
    ) -> Finding:
        return self.warn(
            f"the initial learning rate of {name} is {rate:.4g}, {rate / ranks:.3g} for each of "
            f"{plural(ranks, 'rank')}",
            why=f"The rate was multiplied by the number of ranks. With {name}, more than about "
            f"{LARGEST[name]:g} in the first updates makes the loss jump, or turn NaN.",
            where=step.at,
            evidence=dict.fromkeys(group, f"learning rate {rate:.4g} in the first update"),
            about=Kind.OPTIMIZER.of(f"optimizer {step.optimizer}"),
        )


def _first_steps(recording: Recording) -> list[OptimizerStep]:
    """The first update of each optimizer."""
    return list({update.optimizer: update for update in reversed(recording.updates)}.values())


def _scaled_rate(step: OptimizerStep, name: str, ranks: int) -> float | None:
    """The first rate that is too large and a round number times the ranks; None where there is none."""
    rates = (float(group.get("lr", 0.0)) for group in step.hyperparameters)
    return next((rate for rate in rates if rate > LARGEST.get(name, rate) and _is_round(rate / ranks)), None)


def _is_round(value: float) -> bool:
    """Whether two digits are enough to write it."""
    return abs(value - float(f"{value:.1e}")) <= 1e-9 * abs(value)
