from collections.abc import Iterator, Mapping, Sequence

from ddpdoctor.check import Check, Confidence, Evidence, Finding, Judgement, NotMeasured, Passed
from ddpdoctor.recorder.events.training import Backward, Collective
from ddpdoctor.text import plural
from ddpdoctor.trace import Trace, TrainingStep, grouped
from ddpdoctor.trace.sync import elements, replicas, updates

_GATHERS = ("all_gather", "all_gather_into_tensor", "all_gather_single", "_all_gather_base")


class GatherWithoutGradient(Check):
    """A loss uses gathered tensors that carry no gradient.

    What it finds:
        torch.distributed.all_gather of features that require a gradient, whose result takes part in a loss that
        each rank computes for its own samples. Left alone are tensors that were detached on purpose, numbers for
        the log, and losses that every rank computes over the whole gathered batch.

    Why it matters:
        all_gather returns plain copies. A rank's features serve as negatives on the other ranks, and what they
        do to the loss there never comes back: the gradient is another one than that of the global batch, which
        is what gathering was for.

    Example:
        A contrastive loss of own rows against all columns:
            dist.all_gather(parts, z)
            logits = z @ torch.cat(parts).T / temperature
            F.cross_entropy(logits, own_labels).backward()

    Fix:
        Gather with a gradient:
            from torch.distributed.nn import all_gather
            logits = z @ torch.cat(all_gather(z)).T / temperature
    """

    code = "DD212"
    title = "gathered tensors carry their gradient"

    def examine_run(self, trace: Trace) -> Judgement:
        steps = [update.steps for group in replicas(trace) for update in updates(group)]
        used = [(index, gathering) for row in steps for index, gathering in _used(row)]
        if used:
            lines = grouped(used, lambda pair: pair[1].at)
            return [self._without(trace, gatherings) for gatherings in lines]
        recordings = trace.training().values()
        if not any(call.operation in _GATHERS for recording in recordings for call in recording.collectives):
            raise NotMeasured("nothing was gathered from all ranks")
        every = (step for recording in recordings for step in recording.steps)
        if any(backward.gathered is None for step in every for _, backward in _before_backward(step)):
            raise NotMeasured("this version of torch does not show what a loss was made of; later ones do")
        return Passed("no loss was seen to use gathered tensors that lack their gradient")

    def _without(self, trace: Trace, gatherings: Sequence[tuple[int, Collective]]) -> Finding:
        """Of the gatherings of one line, with the steps in which they were."""
        step, first = gatherings[0]
        shape = "x".join(map(str, first.shape or ()))
        ranks = tuple(trace.training())
        return self.fail(
            f"the loss uses features ({shape}) from {first.operation}, which drops their gradient",
            where=first.at,
            evidence=(
                Evidence(
                    f"step {step}: the tensor given requires a gradient, the loss is as long as all ranks' "
                    "batches together, and each rank has another loss",
                    ranks,
                ),
                f"so in {plural(len(gatherings), 'training step')}",
            ),
            confidence=Confidence.LIKELY,
        )


def _used(steps: Mapping[int, TrainingStep]) -> list[tuple[int, Collective]]:
    """The gathering whose result stands in the loss, with its step, where each rank has a loss of its own."""
    gathered = [[pair for pair in _before_backward(step) if pair[1].gathered] for step in steps.values()]
    if not all(gathered):
        return []
    losses = {pairs[0][1].loss for pairs in gathered}
    if len(losses) == 1 and len(gathered) > 1:
        return []  # every rank computes the loss of the whole batch: the sum over ranks is then complete
    return [(next(iter(steps.values())).index, gathered[0][0][0])]


def _before_backward(step: TrainingStep) -> Iterator[tuple[Collective, Backward]]:
    """Gatherings that lose the gradient of what they were given, each with the backward that follows it."""
    for collective in step.collectives:
        blind = collective.requires_grad and not collective.differentiable
        if collective.operation not in _GATHERS or not blind or elements(collective) <= 1:
            continue  # one number is for the log
        after = next((backward for backward in step.backwards if backward.time > collective.time), None)
        if after is not None:
            yield collective, after
