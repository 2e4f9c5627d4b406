from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ddpdoctor.check import Check, Evidence, Finding, Findings, Passed, Where
from ddpdoctor.recorder.events.training import Collective
from ddpdoctor.text import plural
from ddpdoctor.trace import Recording, Trace, TrainingStep, by_key, on_each_rank
from ddpdoctor.trace.hook_gradients import Multiple, all_are_multiples, multiples, numbers
from ddpdoctor.trace.joint_training import group_size
from ddpdoctor.trace.sync import Group, replicas

_TOLERANCE = 0.05
"""Of a ratio of two norms; rounding moves it by far less, and a factor of two or more by far more."""


@dataclass(frozen=True)
class Twice:
    """A reduction on top of DDP's."""

    step: int
    collective: Collective
    ratio: float | None
    """What it made of the gradient, where that was seen."""


class ReducedTwice(Check):
    """Gradients are summed over ranks again after DDP has averaged them.

    What it finds:
        An all_reduce by the script, with a sum, of gradients that DDP has averaged already, and that nobody
        divides afterwards; and a loss that torch.distributed.nn.all_reduce sums over ranks before the backward.
        Without DDP, gradients of a mean loss that the script sums over ranks, and that neither it nor the loss
        divides by their number.

    Why it matters:
        DDP's gradients are equal on all ranks. Their sum over N ranks is N times too large, so the learning rate
        is N times what is written, and it changes with the number of GPUs. Nothing is raised.

    Example:
        Averaging by hand survived the move to DDP:
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)

    Fix:
        Leave the averaging to DDP: delete the all_reduce of gradients, and take the rank's own loss backward. A loss
        that is summed for the log comes from loss.detach().
    """

    code = "DD211"
    title = "gradients are averaged once"

    def examine_run(self, trace: Trace) -> Findings:
        recordings = trace.training()
        if not any(recording.wrappers for recording in recordings.values()):
            summed = False
            for group in replicas(trace):
                gradients = list(multiples(group, wrapped=False))
                summed |= bool(gradients)
                if gradients and all_are_multiples(gradients, group_size(group)):
                    yield self._summed(gradients[0], group)
                    return
            self.require(summed, "nothing was wrapped in DistributedDataParallel")
            yield Passed("the script does not sum gradients over ranks without dividing them")
            return
        size = trace.world_size or len(recordings)
        self.require(size >= 2, "needs at least two ranks")
        twice = on_each_rank(recordings, lambda recording: _twice(recording, size))
        lines = by_key(twice, lambda again: again.collective.at)
        calls = Counter(again.collective.at for _, again in twice)
        for of_line in lines:
            # Of the reductions in one line.
            first = next(iter(of_line.values()))
            call, ranks = first.collective, tuple(of_line)
            what = f"the loss is summed over {size} ranks before the backward that averages its gradients"
            if call.gradient_of:
                what = f"gradients are summed over {size} ranks again after DistributedDataParallel averaged them"
            of = f"the gradient of {call.gradient_of}" if call.gradient_of else "the loss"
            yield self.fail(
                f"{what}: {first.ratio or size:.3g} times too large",
                where=call.at,
                evidence=(
                    Evidence(f"step {first.step}: {call.operation}({call.reduce or 'sum'}) of {of}", ranks),
                    f"{plural(calls[call.at], 'such call')} in the steps recorded",
                ),
            )
        yield Passed("the script sums no gradient that DistributedDataParallel has averaged")

    def _summed(self, multiple: Multiple, group: Group) -> Finding:
        size, ranks = group_size(group), tuple(group)
        return self.fail(
            f"the script sums gradients over {size} ranks and does not divide them: {size} times too large",
            fix="dist.all_reduce(parameter.grad)\nparameter.grad /= dist.get_world_size()",
            where=_line_of_sum(group, multiple.first.step),
            evidence=(
                *multiple.given(group, " after the backward"),
                Evidence(f"{numbers(multiple.first.used)} at the update, {size} times the mean", ranks),
            ),
        )


def _line_of_sum(group: Group, index: int) -> Where | None:
    """The first all_reduce between a backward and its update, and otherwise the update."""
    step = next(step for step in next(iter(group.values())).steps if step.index == index)
    last = step.last_backward
    summing = (call.at for call in step.collectives if call.operation == "all_reduce" and call.time > last)
    return next(summing, step.optimizer_steps[0].at)


def _twice(recording: Recording, size: int) -> Iterator[Twice]:
    for step in recording.steps:
        for collective in step.collectives:
            if collective.operation != "all_reduce" or collective.reduce not in (None, "sum"):
                continue
            if collective.group is not None and len(collective.group) < size:
                continue
            ratio = _of_gradient(recording, step, collective)
            if ratio is not None and abs(ratio / size - 1) < _TOLERANCE:
                yield Twice(step.index, collective, ratio)
            elif _is_summed_loss(step, collective, size):
                yield Twice(step.index, collective, None)


def _of_gradient(recording: Recording, step: TrainingStep, collective: Collective) -> float | None:
    """How many times as large the gradient was at the update as before this reduction, if DDP had averaged it."""
    key = collective.gradient_of
    wrapper = next((each for each in recording.wrappers if key in {it.key for it in each.parameters}), None)
    if key is None or wrapper is None or not collective.norm:
        return None
    before = [backward for backward in step.backwards if backward.time <= collective.time]
    if not before or wrapper.index not in before[-1].reduced:
        return None
    after = next((taken.norms[key] for taken in step.optimizer_steps if key in taken.norms), None)
    return after / collective.norm if after is not None else None


def _is_summed_loss(step: TrainingStep, collective: Collective, size: int) -> bool:
    """Whether this is a differentiable sum of the loss itself, and the loss was not divided by the ranks again."""
    if not collective.differentiable or not collective.requires_grad or collective.shape not in ((), (1,)):
        return False
    following = next((backward for backward in step.backwards if backward.time >= collective.time), None)
    if following is None or not following.reduced:
        return False
    if any(collective.time < forward.time < following.time for forward in step.forwards):
        return False
    return following.factor is None or abs(following.factor * size - 1) > _TOLERANCE
