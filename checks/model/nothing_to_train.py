from ddpdoctor.check import Check, Judgement, Passed
from ddpdoctor.failures import Message
from ddpdoctor.text import plural, ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.raised import raised_as, raised_by, with_victims


class NothingToTrain(Check):
    """A module without a trainable parameter is wrapped in DistributedDataParallel.

    What it finds:
        The error "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a
        gradient".

    Why it matters:
        The wrap stops the script. Often the module is a frozen teacher or a loss without weights, which needs no
        wrapper; sometimes the part that should be trained was frozen along with the rest.

    Example:
        A frozen network for a perceptual loss:
            vgg.requires_grad_(False)
            vgg = DistributedDataParallel(vgg)

    Fix:
        Use such a module as it is. Where it was to be trained, look where requires_grad_(False) comes from; a
        backbone that is frozen needs a head that is not before the wrap.
    """

    code = "DD223"
    title = "wrapped modules have trainable parameters"
    explained_by = ("DD214",)
    messages = (
        Message(
            r"DistributedDataParallel is not needed when a module doesn't have any parameters? that requires?",
            headline="a module without a parameter to train was wrapped in DistributedDataParallel",
        ),
    )

    def examine_run(self, trace: Trace) -> Judgement:
        if raised := raised_as(trace, *self.raises):
            failed = [it for it in trace.recordings()[next(iter(raised))].wrappers if it.failed]
            name, parameters = (failed[-1].module, failed[-1].parameters) if failed else ("a module", ())
            return self.fail(
                f"{name} has nothing to train, and is wrapped in DistributedDataParallel on "
                + ranks_phrase(with_victims(trace, raised))
                + (f": all {plural(len(parameters), 'parameter')} are frozen" if parameters else ""),
                **raised_by(trace, raised),
            )
        trace.wrapped()
        return Passed("every wrapped module has parameters to train")
