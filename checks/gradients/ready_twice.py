import re

from ddpdoctor.check import Check, Judgement, Passed
from ddpdoctor.logs.log import Log, log_fields
from ddpdoctor.recorder.events.process import Raised
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import Recording, Trace
from ddpdoctor.trace.raised import keys_of, raised_as, raised_by, with_victims

_INDEX = re.compile(r"Parameter at index (\d+)(?: with name (\S+))?")


class ReadyTwice(Check):
    """A parameter's gradient arrived twice in one backward.

    What it finds:
        The error "Expected to mark a variable ready only once", with the name of the parameter behind the
        index in its text.

    Why it matters:
        DDP averages a gradient when its hook fires, and one that arrives in two pieces has been sent away
        incomplete by then. Reentrant activation checkpointing does that for parameters used in two
        checkpointed parts, and so does a parameter used inside and outside of the wrapper's forward.

    Example:
        One block is checkpointed twice in a forward:
            x = checkpoint(self.block, x, use_reentrant=True)
            x = checkpoint(self.block, x, use_reentrant=True)

    Fix:
        checkpoint(self.block, x, use_reentrant=False). Where the graph is the same in every step,
        DistributedDataParallel(model, static_graph=True) works too.
    """

    code = "DD213"
    title = "each gradient arrives once in a backward"
    raises = (r"Expected to mark a variable ready only once",)

    def examine_run(self, trace: Trace) -> Judgement:
        raised = raised_as(trace, *self.raises)
        if not raised:
            trace.training()
            return Passed("no gradient arrived twice in a backward")
        rank, first = next(iter(raised.items()))
        return self.fail(
            f"the gradient of {_name(trace.recordings()[rank], first)} arrived twice in one backward on "
            + ranks_phrase(with_victims(trace, raised)),
            **raised_by(trace, raised),
        )

    def examine_log(self, log: Log) -> Judgement:
        reason = log.reason(*self.raises)
        indices = (match for source in reason.sources for match in _INDEX.finditer(source.text))
        which = next((match[2] or f"parameter {match[1]}" for match in indices), "a parameter")
        headline = f"the gradient of {which} arrived twice in one backward"
        return self.fail(headline, **log_fields(reason))


def _name(recording: Recording, raised: Raised) -> str:
    match = _INDEX.search(raised.message)
    if match is None:
        return "a parameter"
    named = match[2] or next(iter(keys_of(recording, (int(match[1]),))), None)
    return named or f"parameter {match[1]}"
