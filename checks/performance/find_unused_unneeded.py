from ddpdoctor.check import Check
from ddpdoctor.judge import NotMeasured
from ddpdoctor.logs.log import UNSAID, Log, told_by
from ddpdoctor.model import Confidence, Family, Finding, Judgement, Passed, Skipped
from ddpdoctor.trace import Trace
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.training import Wrapper

_UNNEEDED = (
    r"find_unused_parameters=True was specified in DDP constructor, but did not find any unused parameters"
)

_WHY = "The graph is walked after every forward, and what was used is sent to all ranks, for nothing so far."
_FIX = "DistributedDataParallel(model)     # keep the argument where later steps take another path"
_FEWEST = 5
"""Training steps in which every rank has to have used everything."""


class FindUnusedUnneeded(Check):
    """find_unused_parameters=True although every parameter is used.

    What it finds:
        A wrapper that looks for unused parameters in every step and finds none, on any rank, in any of the steps
        that DDP keeps count of: the first ten, and then one in a hundred. Not where an update of any other step came
        without a gradient of one of its parameters: a part that is frozen, or left out, later.

    Why it matters:
        DDP walks the whole graph after each forward, and copies a map of what was used to every rank. The result is
        the same without.

    Example:
        DistributedDataParallel(model, find_unused_parameters=True)      # left from an earlier model

    Fix:
        Leave the argument out. Keep it where later steps take another path through the model.
    """

    code = "DD603"
    name = "find-unused-unneeded"
    family = Family.PERFORMANCE
    title = "nobody looks for unused parameters in vain"
    log_words = ("find_unused_parameters=True was specified",)

    def examine_run(self, trace: Trace) -> Judgement:
        seen = trace.training()
        if trace.broken:
            raise NotMeasured(trace.broken)
        looking = [one for one in next(iter(seen.values())).wrappers if _looks(one)]
        if not looking:
            return Skipped("no wrapper looks for unused parameters")
        for wrapper in looking:
            counts = {rank: _unused(recording, wrapper.index) for rank, recording in seen.items()}
            least = min(len(count) for count in counts.values())
            if any(_left_out(recording, wrapper) for recording in seen.values()):
                continue
            if least >= _FEWEST and not any(map(any, counts.values())):
                return self._unneeded(wrapper, tuple(seen), least)
            if least < _FEWEST:
                raise NotMeasured("too few training steps tell which parameters were used")
        return Passed("there are unused parameters to look for")

    def _unneeded(self, wrapper: Wrapper, ranks: tuple[int, ...], steps: int) -> Finding:
        return self.warn(
            f"find_unused_parameters=True found no unused parameter in {steps} training steps",
            why=_WHY,
            fix=_FIX,
            ranks=ranks,
            where=wrapper.at,
            confidence=Confidence.LIKELY,
        )

    def examine_log(self, log: Log) -> Judgement:
        line = log.first(_UNNEEDED)
        if line is None:
            return UNSAID
        return self.warn(
            "find_unused_parameters=True found no unused parameter", why=_WHY, fix=_FIX, **told_by(line)
        )


def _looks(wrapper: Wrapper) -> bool:
    return bool(wrapper.flags.get("find_unused_parameters")) and not wrapper.flags.get("static_graph")


def _unused(recording: Recording, wrapper: int) -> list[int]:
    """Bytes of unused parameters in each step that DDP kept count of."""
    steps = (*recording.steps, *((recording.trailing,) if recording.trailing else ()))
    return [
        one.unused
        for step in steps
        for one in step.forwards
        if one.wrapper == wrapper and one.unused is not None
    ]


def _left_out(recording: Recording, wrapper: Wrapper) -> bool:
    """Whether an update came without the gradient of a parameter, in whatever step."""
    trained = {one.key for one in wrapper.parameters if one.requires_grad}
    return any(
        gradient is None and key in trained
        for step in recording.steps
        for update in step.optimizer_steps
        for key, gradient in (update.gradients or {}).items()
    )
