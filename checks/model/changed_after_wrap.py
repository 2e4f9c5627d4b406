from collections.abc import Iterator, Mapping

from ddpdoctor.check import Check
from ddpdoctor.judge import NotMeasured
from ddpdoctor.model import Finding, Judgement, Passed
from ddpdoctor.recorder.events.training import Forward
from ddpdoctor.text import listing, plural, ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.instances import by_key, of_model, on_ranks
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.sync import MissedReduction, Unaveraged, finding_fields, unaveraged_updates


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
    title = "wrapped modules keep their parameters"

    def examine_run(self, trace: Trace) -> Judgement:
        recordings = {rank: recording for rank, recording in trace.recordings().items() if recording.wrappers}
        if not recordings:
            raise NotMeasured("nothing was wrapped in DistributedDataParallel")
        unknown = by_key(_with_unknown(recordings), lambda forward: forward.wrapper)
        deaf = [
            [one for one in lost if not one.wrapper.hook and not _without_gradient(one)]
            for lost in _lost(trace)
        ]
        return (
            [self._new_parameters(recordings, forwards) for forwards in unknown]
            or [self._deaf(updates) for updates in deaf if updates]
            or Passed("no parameter of a wrapped module was replaced, added or converted after the wrap")
        )

    def _new_parameters(
        self, recordings: Mapping[int, Recording], forwards: Mapping[int, Forward]
    ) -> Finding:
        rank, first = next(iter(forwards.items()))
        wrapper = next(wrapper for wrapper in recordings[rank].wrappers if wrapper.index == first.wrapper)
        return self.fail(
            f"{wrapper.module} has {plural(len(first.unknown), 'parameter')} that DistributedDataParallel "
            f"does not know on {ranks_phrase(forwards)}: {listing(first.unknown)}",
            why="They came into the module after it was wrapped. DDP put its hooks on the parameters that "
            "were there in its constructor, so nobody averages the gradients of these.",
            fix="change the module first, and wrap it last: model = DistributedDataParallel(net)",
            **on_ranks(forwards, lambda forward: f"new: {listing(forward.unknown, 8)}"),
            about=of_model(wrapper),
        )

    def _deaf(self, updates: list[Unaveraged]) -> Finding:
        first = updates[0]
        forward = first.first.forward
        return self.fail(
            f"DistributedDataParallel's hooks no longer fire for {first.wrapper.module}'s gradients on "
            f"{ranks_phrase(first.by_rank)}: {len(first.differing)} of {first.compared} differ between ranks",
            why="The forward went through the wrapper and every parameter got a gradient, and yet nothing "
            "was all-reduced. Moving the module, or converting it to another type and back, drops the hooks "
            "that DDP put on its parameters.",
            fix="finish .to(), .half(), .float(), .cpu() and .cuda() first, and wrap last: "
            "model = DistributedDataParallel(net)",
            **{**finding_fields(updates, first), **({"where": forward.at} if forward else {})},
        )


def _with_unknown(recordings: Mapping[int, Recording]) -> Iterator[tuple[int, Forward]]:
    """The forwards through wrappers that met parameters which their wrapper does not know."""
    for rank, recording in recordings.items():
        for step in (*recording.steps, *filter(None, [recording.trailing])):
            for forward in step.forwards:
                if forward.unknown and forward.grad and not forward.around:
                    yield rank, forward


def _lost(trace: Trace) -> list[list[Unaveraged]]:
    try:
        return unaveraged_updates(trace, MissedReduction.HOOKS_LOST)
    except NotMeasured:
        return []


def _without_gradient(lost: Unaveraged) -> bool:
    """Whether a parameter of the wrapper got none, which leaves its bucket unreduced as well (DD204)."""
    trained = {parameter.key for parameter in lost.wrapper.parameters if parameter.requires_grad}
    return any(
        (taken.gradients or {}).get(key, "") is None
        for taken in lost.update.taken.values()
        for key in trained
    )
