from ddpdoctor.check import Check
from ddpdoctor.judge import NotMeasured
from ddpdoctor.logs.log import UNSAID, Log, told_by
from ddpdoctor.logs.stall import find_stall
from ddpdoctor.model import Confidence, Family, Judgement, Passed, Role
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.stations import alone, parting_of
from ddpdoctor.trace.verdict import claim, finding_of


class CollectiveOnSomeRanks(Check):
    """A collective runs on some ranks only.

    What it finds:
        The few ranks, mostly rank 0 alone, that waited in a collective that the others never called: in a run that
        broke or stands still, the line of it, and what the others did instead.

    Why it matters:
        Calls under `if rank == 0` are collectives more often than they look: the forward of a wrapped model that has
        buffers, a metric's compute(), a save that gathers. Rank 0 waits there until the timeout.

    Example:
        if rank == 0:
            evaluate(model)      # model is wrapped: its forward broadcasts buffers, and nobody else takes part

    Fix:
        Use the bare model (model.module) where one rank works alone, or let all ranks take part.
    """

    code = "DD303"
    name = "collective-on-some-ranks"
    family = Family.COLLECTIVES
    title = "collectives run on every rank"
    explained_by = ("DD005", "DD106", "DD204", "DD214", "DD225", "DD308")

    def examine_run(self, trace: Trace) -> Judgement:
        hung = claim(self, trace)
        if hung:
            return hung
        parted = parting_of(trace)
        if parted is None:
            if trace.broken:
                raise NotMeasured(trace.broken)
            return Passed(f"{ranks_phrase(trace.recordings())} issued the same collectives")
        verdict = alone(parted.stations)
        if verdict is None:
            raise NotMeasured("ranks parted otherwise than by a collective of some")
        return [finding_of(verdict)]

    def examine_log(self, log: Log) -> Judgement:
        stall = find_stall(log)
        if stall is None or not stall.alone:
            return UNSAID
        who = ranks_phrase(stall.waiting)
        return [
            self.fail(
                f"{who} alone waited in {stall.what}{stall.for_how_long}, and no other rank came",
                why=f"{who.capitalize()} called something that is a collective, and the other ranks did not: "
                "code under "
                "a condition on the rank, such as an evaluation through the wrapped model or a metric.",
                fix="use model.module in code that one rank runs alone, or take the condition away\n"
                "TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 names the line",
                confidence=Confidence.LIKELY,
                **told_by(*stall.told[:4], role=Role.MESSENGER, ranks=stall.waiting),
            )
        ]
