import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ddpdoctor.check import REINSTALL_TORCH, Check, Evidence, Finding, Judgement, NotMeasured, Passed
from ddpdoctor.group.group_record import GroupRecord
from ddpdoctor.recorder.events.training import Collective, MeanLoss
from ddpdoctor.recorder.events.updates import HookedGradient
from ddpdoctor.text import by_state, plural, ranks_phrase
from ddpdoctor.trace import Trace, grouped, of_model
from ddpdoctor.trace.hook_gradients import Multiple, all_are_multiples, multiples, numbers
from ddpdoctor.trace.joint_training import group_size
from ddpdoctor.trace.summed import Total, summed_over_ranks
from ddpdoctor.trace.sync import Group, Update, replicas, updates

_NEAR = 1e-3
"""How far two numbers may be from each other that are one, but for rounding."""


@dataclass(frozen=True)
class DividedByAll:
    """A loss that each rank divides by a number that was summed over the ranks."""

    loss: MeanLoss
    count: Total
    step: int


class GradientsNotAveraged(Check):
    """DDP's gradients are not those of one process on all ranks' samples.

    What it finds:
        After backward through DistributedDataParallel, a gradient that is not the one that a single process
        computes on the samples of all ranks together: a sum where there should be a mean, a rank left out, or
        a change that a communication hook made. Of a script: its communication hook that sums and does not
        divide, or divides twice, where nothing takes that back; and its loss that each rank divides by the count
        of all ranks, which DDP then divides by the number of ranks once more.

    Why it matters:
        Data-parallel training is right because the mean of the ranks' gradients is the gradient of the whole
        batch. Where it is something else, the learning rate is off by a factor, or part of the data does not
        count, and training still runs.

    Example:
        A hook that sums and does not divide:
            def hook(state, bucket):
                work = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
                return work.then(lambda done: done.value()[0])       # world size times too large
            model.register_comm_hook(None, hook)

    Fix:
        Divide by the world size in the hook, once, or leave the averaging to DDP:
            return work.then(lambda done: done.value()[0] / dist.get_world_size())
        And wait for the works that async_op=True returns before the step.
    """

    code = "DD228"
    name = "gradients-not-averaged"
    title = "gradients are those of one process on the whole batch"
    measurements = ("weights",)
    explained_by = (
        *("DD201", "DD202", "DD203", "DD205", "DD207", "DD209", "DD210", "DD211", "DD212", "DD217"),
        "DD218",
    )

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        ranks.require_right_answers()
        values = ranks.values("weights")
        self.require(not ranks.replicas_differ, "replicas differ (DD206)")
        wrong = {rank: value["gradient"] for rank, value in values.items() if value["gradient"]}
        if wrong:
            first = next(iter(wrong.values()))
            return self.fail(
                f"DDP's gradient of {first['tensor']} element {first['element']} is {first['got']:.6g} on "
                f"{ranks_phrase(wrong)}, {first['expected']:.6g} in one process on the same samples",
                fix=REINSTALL_TORCH,
                evidence=by_state(
                    wrong,
                    lambda value: (
                        f"{value['tensor']} element {value['element']}: {value['got']:.9g}, "
                        f"expected {value['expected']:.9g}"
                    ),
                ),
            )
        return Passed("DDP's gradients are those of one process on the concatenated batch")

    def examine_run(self, trace: Trace) -> Judgement:
        hooked = any(recording.events(HookedGradient) for recording in trace.training().values())
        groups = replicas(trace)
        findings = [
            self._hook(gradients[0], times, group)
            for group in (groups if hooked else ())
            for gradients in grouped(multiples(group, wrapped=True), lambda multiple: multiple.first.wrapper)
            if (times := _by_ranks(gradients, group_size(group)))
        ]
        for group in groups:
            taken = list(updates(group))
            steps = ((update, _not_waited_for(group, update)) for update in taken)
            if first := next((step for step in steps if step[1]), None):
                findings.append(self._too_early(*first))
            divided = (_divided_by_all(group, update) for update in taken)
            if found := next(filter(None, divided), None):
                findings.append(self._by_all(found, group_size(group)))
        if not findings:
            raise NotMeasured(
                "no communication hook was seen that changes the mean of the ranks' gradients, no step before its "
                "gradients had come, and no loss over the count of all ranks"
            )
        return findings

    def _too_early(self, update: Update, by_rank: Mapping[int, Sequence[Collective]]) -> Finding:
        call = next(iter(by_rank.values()))[0]
        what = "gradients" if call.gradient_of else "weights"
        return self.fail(
            f"optimizer.step() did not wait for the {call.operation} of its {what}",
            why=f"With async_op=True, {call.operation} only begins, and returns a work to wait for. Nothing waited for "
            f"it before training step {update.index}, so each rank may take that step with {what} that have come or "
            "with its own, and the replicas become different models, in some runs and not in others.",
            fix=f"works = [dist.{call.operation}(..., async_op=True) for ...]    # keep what it returns\n"
            "for work in works:\n    work.wait()    # each of them, before optimizer.step()",
            where=call.at,
            ranks=tuple(by_rank),
            evidence=by_state(
                by_rank,
                lambda calls: f"{plural(len(calls), call.operation)} not waited for at {update.where}",
            ),
        )

    def _by_all(self, found: DividedByAll, size: int) -> Finding:
        total, given, call = f"{found.count.total:g}", found.count.given, found.count.call
        return self.fail(
            f"the loss is divided by {total}, the count of all ranks, and its gradients by {size} ranks again: "
            f"{size} times too small",
            why=f"DDP averages the ranks' gradients. A rank's part of the sum over all {total}, divided by {total}, is "
            f"its part of the mean: these parts have to be added up, and their average is 1/{size} of that.",
            fix="loss = loss * dist.get_world_size()    # before the backward",
            where=found.loss.at,
            ranks=tuple(given),
            evidence=(
                *by_state(given, lambda own: f"step {found.step}: {own:g} given to {call.operation}"),
                Evidence(f"{total} got, by which the loss is divided", tuple(given), call.at),
            ),
        )

    def _hook(self, multiple: Multiple, times: str, group: Group) -> Finding:
        size, wrapper = group_size(group), next(iter(group.values())).wrappers[multiple.first.wrapper or 0]
        return self.fail(
            f"the communication hook {wrapper.hook} makes gradients {times} the mean of {size} ranks",
            where=wrapper.hooked_at,
            evidence=(
                *multiple.given(group, ", given to the hook"),
                f"{numbers(multiple.first.got)} after the backward, {times} the mean",
            ),
            about=of_model(wrapper),
        )


def _not_waited_for(group: Group, update: Update) -> dict[int, list[Collective]]:
    """By rank, what had been begun when the optimizer stepped, of what it stepped with."""
    by_rank = {
        rank: [
            call
            for call in update.steps[rank].collectives
            if call.id in taken.not_waited_for
            if (optimizer := group[rank].optimizer(taken.optimizer))
            and {call.gradient_of, call.weight_of} & set(optimizer.keys)
        ]
        for rank, taken in update.taken.items()
    }
    return {rank: calls for rank, calls in by_rank.items() if calls}


def _divided_by_all(group: Group, update: Update) -> DividedByAll | None:
    """A loss of this step whose elements weigh one in the number of all, where their gradients are averaged."""
    if len(update.steps) < group_size(group) or not _is_only_averaged(group, update):
        return None
    calls = {
        rank: [it for it in step.collectives if it.time < step.last_backward]
        for rank, step in update.steps.items()
    }
    totals = list(summed_over_ranks(calls))
    first = next(iter(update.steps.values()))
    for loss in (it for it in first.losses if it.function and not math.isclose(it.factor, 1)):
        alike = {rank: [it for it in step.losses if it.is_like(loss)] for rank, step in update.steps.items()}
        counts = {rank: sum(it.count for it in losses) for rank, losses in alike.items()}
        weights = {it.weight for losses in alike.values() for it in losses}
        for count in totals:
            # Of windows of several backwards, a count of one micro-batch may weigh as much by chance.
            times = sum(counts.values()) / count.total
            whole = 1 if len(first.backwards) > 1 else max(1, round(times))
            shares = ((counts[rank], whole * given) for rank, given in count.given.items())
            ones = ((weight * count.total, 1.0) for weight in weights)
            if all(alike.values()) and all(_are_near(*pair) for pair in ((times, whole), *shares, *ones)):
                return DividedByAll(loss, count, update.index)
    return None


def _are_near(value: float, other: float) -> bool:
    return math.isclose(value, other, rel_tol=_NEAR)


def _is_only_averaged(group: Group, update: Update) -> bool:
    """Whether the gradients of an update are what DDP made of those of the ranks, and nothing else was done to them."""
    for rank, step in update.steps.items():
        own = any(it.gradient_of or it.requires_grad or it.differentiable for it in step.collectives)
        hooked = any(wrapper.hook for wrapper in group[rank].wrappers)
        norms, used = step.backwards[-1].norms if step.backwards else {}, update.taken[rank].norms
        kept = [_are_near(norm, used.get(key, 0)) for key, norm in norms.items() if norm]
        if own or hooked or step.joined or not kept or not all(kept):
            return False
    return True


def _by_ranks(gradients: Sequence[Multiple], size: int) -> str:
    """How many times the mean every gradient is, where that comes of the number of ranks and stays; else empty."""
    for wanted, text in ((size, f"{size} times"), (1 / size, f"1/{size} of")):
        if all_are_multiples(gradients, wanted):
            return text
    return ""
