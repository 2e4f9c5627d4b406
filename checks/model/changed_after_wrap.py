from collections.abc import Mapping

from ddpdoctor.check import Check
from ddpdoctor.judge import NotMeasured
from ddpdoctor.model import Evidence, Family, Finding, Judgement, Passed
from ddpdoctor.text import listing, plural, ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.sync import Gap, Lost, lost_gradients
from ddpdoctor.trace.training import Forward


class ChangedAfterWrap(Check):
    """Parameters were replaced, added or converted after the wrap.

    What it finds:
        Trainable parameters inside a wrapped module that were not there when DDP was constructed; and forwards
        through the wrapper whose backward all-reduced nothing, although every parameter got a gradient: the
        module was moved or converted to another type and back, which drops the reducer's hooks.

    Why it matters:
        DDP registers its hooks once, in its constructor. What comes later is averaged by nobody: each rank trains
        its own copy. Without find_unused_parameters the next forward raises "Expected to have finished reduction";
        with it, nothing is said.

    Example:
        The head is exchanged for another task after the wrap:
            model = DistributedDataParallel(net)
            model.module.head = nn.Linear(512, 10)

    Fix:
        Change the module first, wrap it last:
            net.head = nn.Linear(512, 10)
            model = DistributedDataParallel(net.to(device))
    """

    code = "DD205"
    name = "changed-after-wrap"
    family = Family.MODEL
    title = "a module keeps the parameters with which it was wrapped"

    def examine_run(self, trace: Trace) -> Judgement:
        seen = {rank: one for rank, one in trace.recordings().items() if one.wrappers}
        if not seen:
            raise NotMeasured("nothing was wrapped in DistributedDataParallel")
        strange = {rank: found for rank, one in seen.items() if (found := _first_unknown(trace, rank))}
        if strange:
            return self._new_parameters(trace, strange)
        deaf = [one for one in _lost(trace) if not one.wrapper.hook and not _without_gradient(one)]
        if deaf:
            return self._deaf(deaf)
        return Passed("no parameter of a wrapped module was replaced, added or converted after the wrap")

    def _new_parameters(self, trace: Trace, strange: Mapping[int, Forward]) -> Finding:
        ranks = tuple(strange)
        first = strange[ranks[0]]
        name = next(one.module for one in trace.recordings()[ranks[0]].wrappers if one.index == first.wrapper)
        count = plural(len(first.unknown), "parameter")
        return self.fail(
            f"{name} has {count} that DistributedDataParallel does not know on {ranks_phrase(ranks)}: "
            + listing(first.unknown),
            why="They came into the module after it was wrapped. DDP put its hooks on the parameters that were there "
            "in its constructor, so nobody averages the gradients of these.",
            fix="change the module first, and wrap it last: model = DistributedDataParallel(net)",
            ranks=ranks,
            where=first.at,
            evidence=tuple(
                Evidence(
                    f"new: {listing(unknown, 8)}", tuple(r for r in ranks if strange[r].unknown == unknown)
                )
                for unknown in dict.fromkeys(one.unknown for one in strange.values())
            ),
        )

    def _deaf(self, lost: list[Lost]) -> Finding:
        one, ranks = lost[0], tuple(lost[0].by_rank)
        return self.fail(
            f"DistributedDataParallel no longer hears of {one.wrapper.module}'s gradients on {ranks_phrase(ranks)}: "
            f"{len(one.differing)} of {one.compared} differ between ranks",
            why="The forward went through the wrapper and every parameter got a gradient, and yet nothing was "
            "all-reduced. Moving the module, or converting it to another type and back, drops the hooks that DDP "
            "put on its parameters.",
            fix="finish .to(), .half(), .float(), .cpu() and .cuda() first, and wrap last: "
            "model = DistributedDataParallel(net)",
            ranks=ranks,
            where=one.first.forward.at if one.first.forward else one.first.where,
            evidence=(
                Evidence(
                    f"{plural(len({own.update.index for own in lost}), 'update')} without an all-reduce, "
                    f"the first: step {one.update.index}",
                    ranks,
                ),
                Evidence(f"gradients that differ: {listing(one.differing)}"),
            ),
        )


def _first_unknown(trace: Trace, rank: int) -> Forward | None:
    one = trace.recordings()[rank]
    steps = (*one.steps, *([one.trailing] if one.trailing else []))
    forwards = (forward for step in steps for forward in step.forwards)
    return next(
        (forward for forward in forwards if forward.unknown and forward.grad and not forward.around), None
    )


def _lost(trace: Trace) -> list[Lost]:
    try:
        return lost_gradients(trace, Gap.DEAF)
    except NotMeasured:
        return []


def _without_gradient(lost: Lost) -> bool:
    """Whether a parameter of the wrapper got none, which leaves its bucket unreduced as well (DD204)."""
    trained = {parameter.key for parameter in lost.wrapper.parameters if parameter.requires_grad}
    return any(
        (taken.gradients or {}).get(key, "") is None
        for taken in lost.update.taken.values()
        for key in trained
    )
