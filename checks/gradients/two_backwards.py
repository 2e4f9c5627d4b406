from ddpdoctor.check import Check, Findings, Passed
from ddpdoctor.text import differ, ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.sync import MissedReduction, finding_fields, unaveraged_updates


class TwoBackwards(Check):
    """A second backward ran after the reducer had finished.

    What it finds:
        Two backwards for one arming of the reducer: two forwards and then two losses taken backward one by one,
        or one graph taken backward twice. The first is averaged, the second only adds local gradients.

    Why it matters:
        A forward arms the reducer, and the first backward uses that up. What later ones add differs on every
        rank and goes into the update, so that the weights drift apart without an error.

    Example:
        Two views of a batch, and a loss for each:
            first, second = model(x), model(augment(x))
            criterion(first, y).backward()
            criterion(second, y).backward()

    Fix:
        Take one sum backward: (criterion(first, y) + criterion(second, y)).backward(). Or take each loss
        backward right after its own forward.
    """

    code = "DD207"
    title = "every backward before an update is averaged"
    explained_by = ("DD225", "DD213")

    def examine_run(self, trace: Trace) -> Findings:
        for updates in unaveraged_updates(trace, MissedReduction.SECOND_BACKWARD):
            first = updates[0]
            yield self.fail(
                f"a second backward of the step was not averaged on {ranks_phrase(first.by_rank)}: "
                f"{differ(len(first.differing), first.compared, 'gradient')} between ranks",
                **finding_fields(updates, first),
            )
        yield Passed("no backward came after the reducer had finished")
