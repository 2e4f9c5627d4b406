from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ddpdoctor.check import Check, Finding, Judgement, Passed, Where
from ddpdoctor.program import Origin, Program
from ddpdoctor.text import by_state, fold_ranks, plural
from ddpdoctor.trace import Trace, TrainingStep, by_key
from ddpdoctor.trace.sync import replicas, updates

_WORST_RATIO = 1.1
"""Unequal counts below this ratio change a gradient by less than what another batch would."""
_WORST_RATIO_BY_HAND = 1.3
"""More, since what is divided by hand is often what a mask chose at random, about as much on every rank."""
_SHARE_OF_STEPS = 0.25
"""A last batch that is shorter on one rank is no reason to speak; it has to be so in a part of all steps."""


@dataclass(frozen=True)
class Uneven:
    """The same loss of the same step, with unequal denominators."""

    step: int
    at: Where | None
    function: str | None
    counts: Mapping[int, int]
    ignored: int | None
    """The target that does not count; None where every element does."""
    weights: Mapping[int, float]
    """What each element is multiplied by."""

    @property
    def ratio(self) -> float:
        """How much more an element weighs on the rank with the fewest."""
        counted = max(self.counts.values()) / max(1, min(self.counts.values()))
        least = min(map(abs, self.weights.values()))
        # A count that is made good by a factor of the rank's own is none.
        return min(counted, max(map(abs, self.weights.values())) / least) if least else 1.0

    @property
    def matters(self) -> bool:
        """Whether the ratio is worth a word."""
        return self.ratio >= (_WORST_RATIO if self.function else _WORST_RATIO_BY_HAND)


class UnevenMean(Check):
    """A loss averages over unequal counts on the ranks.

    What it finds:
        A loss that divides by the rank's own number of elements, tokens that are not padding for instance, where
        these numbers differ between ranks; with the worst ratio. It may be a loss of torch.nn, or a sum that the
        script divides by hand. Losses that divide by a global count are right.

    Why it matters:
        DDP averages gradients over ranks, whatever they were computed from. The mean of means is not the mean: an
        element on the rank with few of them weighs more, by the ratio of the counts. Training runs, and its
        gradient is not the one of the whole batch, nor the one that fewer or more GPUs would give.

    Example:
        Padding is ignored, and the sequences of the ranks differ in length:
            loss = F.cross_entropy(logits, targets, ignore_index=-100)    # a mean over this rank's tokens

    Fix:
        Sum, and divide by the global mean of the counts:
            loss = F.cross_entropy(logits, targets, ignore_index=-100, reduction="sum")
            count = (targets != -100).sum()
            dist.all_reduce(count)
            loss = loss * dist.get_world_size() / count
    """

    code = "DD209"
    title = "losses average over equal counts on every rank"
    explained_by = ("DD106", "DD225")

    def examine_run(self, trace: Trace) -> Judgement:
        rows = [_rows(update.steps) for group in replicas(trace) for update in updates(group)]
        compared = list(filter(None, rows))
        self.require(compared, "no loss was recorded that averages over a count of its elements")
        uneven = [(number, loss) for number, row in enumerate(compared) for loss in row if loss.matters]
        uneven.sort(key=lambda pair: (pair[0], -pair[1].ratio))
        # Of each line, the worst of each step.
        lines = by_key(uneven, lambda loss: (loss.at, loss.function))
        often = [line for line in lines if len(line) >= max(1, _SHARE_OF_STEPS * len(compared))]
        return [self._uneven(list(line.values()), len(compared), trace) for line in often] or Passed(
            f"losses averaged over equal counts in {plural(len(compared), 'training step')}"
        )

    def _uneven(self, uneven: list[Uneven], compared: int, trace: Trace) -> Finding:
        """Of one loss, in the steps in which its counts were uneven."""
        worst = max(uneven, key=lambda row: row.ratio)
        low, high = min(worst.counts.values()), max(worst.counts.values())
        return self.warn(
            f"{worst.function or 'the loss'} averages over {low} to {high} elements in one step: "
            f"those of some ranks count {worst.ratio:.1f} times as much",
            fix=_divided_by_all(worst),
            where=_division(worst, trace) or worst.at,
            evidence=(
                *by_state(
                    dict(sorted(worst.counts.items(), key=lambda item: item[1])),
                    lambda count: f"step {worst.step}: {count} elements",
                ),
                f"so in {len(uneven)} of {plural(compared, 'training step')} (ranks {fold_ranks(worst.counts)})",
            ),
            # Ranks that have slipped out of step are compared with other batches than they should be.
            explained_by=("DD308",) if trace.broken else (),
        )


def _division(loss: Uneven, trace: Trace) -> Where | None:
    """The line that divides a sum by hand, by a number that is not a setting; None where it is not seen."""
    script = next(iter(trace.training().values())).script
    calls = Program.holding(loss.at, script).calls_at(loss.at) if loss.at and loss.function is None else []
    for part in (it for call in calls if call.owner for it in call.owner.made_of()):
        if any(not divisor.only(Origin.ENVIRONMENT) for _, divisor in part.quotient()):
            return part.where
    return None


def _divided_by_all(loss: Uneven) -> str:
    """The same loss, divided by the count of all ranks."""
    if loss.function is None:
        return (
            "dist.all_reduce(total := count.clone())    # count: what the sum is divided by\n"
            "loss = losses.sum() * dist.get_world_size() / total"
        )
    ignoring = "" if loss.ignored in (None, -100) else f", ignore_index={loss.ignored}"
    count = f"(targets != {loss.ignored}).sum()"
    if loss.ignored is None:
        count = "torch.tensor(targets.numel(), device=targets.device)"
    return (
        f'loss = F.{loss.function}(outputs, targets{ignoring}, reduction="sum")    # over this rank\n'
        f"count = {count}\n"
        "dist.all_reduce(count)\n"
        "loss = loss * dist.get_world_size() / count"
    )


def _rows(steps: Mapping[int, TrainingStep]) -> list[Uneven]:
    """The mean losses of one training step that every rank computed, side by side."""
    if any(_counts_together(step) for step in steps.values()):
        return []
    return [*_paired(steps, by_hand=False), *_paired(steps, by_hand=True)]


def _paired(steps: Mapping[int, TrainingStep], *, by_hand: bool) -> Iterator[Uneven]:
    losses = {
        rank: [loss for loss in step.losses if (loss.function is None) is by_hand and not loss.is_sum]
        for rank, step in steps.items()
    }
    if len({len(means) for means in losses.values()}) > 1:
        return
    for position, first in enumerate(next(iter(losses.values()))):
        row = {rank: means[position] for rank, means in losses.items()}
        if all(loss.is_like(first) for loss in row.values()):
            yield Uneven(
                next(iter(steps.values())).index,
                first.at,
                first.function,
                {rank: loss.count for rank, loss in row.items()},
                next((loss.ignored for loss in row.values() if loss.ignored is not None), None),
                {rank: loss.weight for rank, loss in row.items()},
            )


def _counts_together(step: TrainingStep) -> bool:
    """Whether a number was all-reduced before the last backward: it may be the count that the loss is scaled by."""
    last = step.last_backward
    reduces = [it for it in step.collectives if it.operation == "all_reduce" and not it.requires_grad]
    return any(it.time < last for it in reduces)
