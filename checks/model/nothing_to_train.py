from ddpdoctor.check import Check
from ddpdoctor.judge import NotMeasured
from ddpdoctor.logs.log import UNSAID, Log, told_by
from ddpdoctor.model import Family, Judgement, Passed
from ddpdoctor.text import plural, ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.raised import last_lines, place, raised_as, with_victims


class NothingToTrain(Check):
    """A module without any trainable parameter is wrapped.

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
    name = "nothing-to-train"
    family = Family.MODEL
    title = "what is wrapped has something to train"
    raises = (
        r"DistributedDataParallel is not needed when a module doesn't have any parameters? that requires?",
    )

    def examine_run(self, trace: Trace) -> Judgement:
        raised = raised_as(trace, *self.raises)
        if raised:
            ranks = with_victims(trace, raised)
            failed = [one for one in trace.recordings()[next(iter(raised))].wrappers if one.failed]
            name = failed[-1].module if failed else "a module"
            count = f": all {plural(len(failed[-1].parameters), 'parameter')} are frozen" if failed else ""
            return [
                self.fail(
                    f"{name} has nothing to train, and is wrapped in DistributedDataParallel on "
                    f"{ranks_phrase(ranks)}{count if failed and failed[-1].parameters else ''}",
                    why="DDP averages gradients, and this module has none: every parameter has requires_grad=False.",
                    fix="use the module without a wrapper; or, where it was to be trained: "
                    "module.requires_grad_(True)",
                    ranks=ranks,
                    where=place(trace, raised),
                    evidence=last_lines(raised),
                )
            ]
        wrapped = [one for seen in trace.recordings().values() for one in seen.wrappers]
        if not wrapped:
            raise NotMeasured("nothing was wrapped in DistributedDataParallel")
        return Passed("every wrapped module has parameters to train")

    def examine_log(self, log: Log) -> Judgement:
        told = log.told(*self.raises)
        if told is None:
            return UNSAID
        return [
            self.fail(
                "a module without a parameter to train was wrapped in DistributedDataParallel",
                why="The wrapper averages gradients, and no parameter of this module asks for one: it is "
                "frozen, or made "
                "for evaluation.",
                fix="wrap only what is trained: if any(p.requires_grad for p in model.parameters()): ...",
                **told_by(*told.by),
            )
        ]
