from ddpdoctor.check import Check, Evidence, Finding, Judgement, NotMeasured, Passed, Where
from ddpdoctor.text import differ, listing, plural, ranks_phrase
from ddpdoctor.trace import Trace, made_at, on_each_rank, shown_at
from ddpdoctor.trace.lines import program_of
from ddpdoctor.trace.sync import Group, Update, differing, elements, replicas, updates, weights_are_made_equal

_DEVICES = ("torch.cuda.", "torch.accelerator.", "torch.backends.")
"""What tells which devices there are."""
_WRAPPER = "torch.nn.parallel.DistributedDataParallel"
_LARGEST_STATISTIC = 16
"""Elements of a tensor that may be losses and counts; a larger one may be gradients or weights."""


class NotWrapped(Check):
    """Ranks train without synchronising gradients or weights.

    What it finds:
        A process group of several ranks, optimizer steps on each, no DistributedDataParallel that holds what they
        train, no collective on gradients or weights, and weights that differ after a step. Ranks that train a model
        each on purpose, for the folds of a cross-validation or with different learning rates, are left alone:
        no sampler divides their data, and they run no collectives during training, or began unequal.

    Why it matters:
        Everything runs: the launcher, the group, the sampler that divides the data. But each rank trains a different
        model on its part. What rank 0 saves has seen 1/N of the data.

    Example:
        The wrap depends on a GPU being there:
            if torch.cuda.is_available():
                model = DistributedDataParallel(model.cuda(), device_ids=[local_rank])

    Fix:
        Wrap in every case; without device_ids it works on the CPU too:
            model = DistributedDataParallel(model)
    """

    code = "DD227"
    title = "gradients or weights are synchronised"
    explained_by = ("DD225",)

    def examine_run(self, trace: Trace) -> Judgement:
        groups = replicas(trace)
        recordings = [recording for group in groups for recording in group.values()]
        if any(wrapper.failed is None for recording in recordings for wrapper in recording.wrappers):
            return Passed("the model is wrapped in DistributedDataParallel")
        drifting = [(group, first) for group in groups if (first := _drifting(group))]
        if drifting:
            return [self._alone(group, first) for group, first in drifting]
        if not any(True for group in groups for _ in updates(group)):
            raise NotMeasured("no optimizer took steps that ranks have in common")
        return Passed("nothing is wrapped in DistributedDataParallel, and the script synchronises by itself")

    def _alone(self, group: Group, first: Update) -> Finding:
        after, ranks = differing(first.after), tuple(first.taken)
        count = len(first.after[ranks[0]] or ())
        collectives = sum(len(recording.collectives) for recording in group.values())
        made = made_at(group, next(iter(first.taken.values())).optimizer)
        where = _left_out_wrap(group, first.where) or made or first.where
        return self.fail(
            f"{ranks_phrase(ranks)} train without DistributedDataParallel: "
            f"{differ(len(after), count, 'parameter')} after step {first.index}",
            where=where,
            evidence=(
                *shown_at("updated", first.where),
                f"differ: {listing(after)}",
                Evidence(f"{plural(collectives, 'collective')}, none with gradients or weights", ranks),
            ),
        )


def _left_out_wrap(group: Group, update: Where | None) -> Where | None:
    """The condition that left out the one wrap of a script, or the wrap; None where no line wraps, or several do."""
    if update is None:
        return None
    program = program_of(update, group)
    wraps = program.calls(_WRAPPER)
    conditions = program.conditions(wraps[0]) if len(wraps) == 1 else []
    of_device = [
        it for it in conditions if any(part.name.startswith(_DEVICES) for part in it.test.origins.sources)
    ]
    decisive = (of_device or conditions)[-1:]
    return decisive[0].at if decisive else wraps[0] if len(wraps) == 1 else None


def _drifting(group: Group) -> Update | None:
    """The first update after which weights differ for good; None where they do not, or the script sees to it."""
    apart = [update for update in updates(group) if update.differing_gradients and differing(update.after)]
    if not apart or weights_are_made_equal(group):
        return None
    # Weights may be averaged at intervals longer than what was recorded; then tensors travel all the same.
    calls = on_each_rank(group, lambda recording: recording.collectives)
    travels = any(
        call.weight_of or call.gradient_of or (elements(call) > _LARGEST_STATISTIC and not call.requires_grad)
        for _, call in calls
    )
    return None if travels else apart[0]
