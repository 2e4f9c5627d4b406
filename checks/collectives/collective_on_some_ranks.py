from ddpdoctor.blame.causes import AloneInOutput, CalledAlone, LeftCallOut
from ddpdoctor.blame.wording import cause_fields, for_seconds, who
from ddpdoctor.check import reports
from ddpdoctor.judge import NotMeasured
from ddpdoctor.logs.log import Log
from ddpdoctor.logs.stall import judge_stall
from ddpdoctor.model import Family, Finding, Judgement, Passed
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.sequence import called_alone, divergence_of
from ddpdoctor.trace.standstill_check import StandstillCheck

_FIX_FORWARD = "model.module(x)     # the bare model: no rank waits for another"
_FIX_CALL = (
    "take the call out of the condition on the rank, so that every rank makes it\n"
    "if rank == 0:\n    ...    # only what one rank can do alone"
)


class CollectiveOnSomeRanks(StandstillCheck):
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

    def examine_ended(self, trace: Trace) -> Judgement:
        diverged = divergence_of(trace)
        if diverged is None:
            if trace.broken:
                raise NotMeasured(trace.broken)
            return Passed(f"{ranks_phrase(trace.recordings())} issued the same collectives")
        cause = called_alone(diverged)
        if cause is None:
            raise NotMeasured("ranks diverged otherwise than by a collective of some")
        return [self._called_alone(cause)]

    @reports(CalledAlone)
    def _called_alone(self, cause: CalledAlone) -> Finding:
        ranks, rest = who(cause.culprits), who(cause.others.ranks)
        instead = (
            f" at {cause.position}, where {rest} called {cause.others.text}"
            if cause.position
            else f", while {rest} went on to {cause.others.text}"
        )
        return self.fail(
            f"{ranks} alone called {cause.call}{instead}",
            why=f"It is a collective, which needs every rank of the group: {ranks} waited there for {rest}, or met a "
            "collective that was meant for something else.",
            fix=_FIX_FORWARD if cause.of_forward else _FIX_CALL,
            **cause_fields(cause),
        )

    @reports(LeftCallOut)
    def _left_out(self, cause: LeftCallOut) -> Finding:
        return self.fail(
            f"{who(cause.culprits)} left out {cause.call} at {cause.position}, which {who(cause.others)} called",
            why="Collectives are matched by their order alone, so what follows met another one: the ranks wait for "
            "what never comes, get each other's bytes, or end with an error about sizes.",
            fix=_FIX_CALL,
            **cause_fields(cause),
        )

    def examine_log(self, log: Log) -> Judgement:
        return judge_stall(self, log)

    @reports(AloneInOutput)
    def _alone_in_output(self, cause: AloneInOutput) -> Finding:
        ranks = who(cause.culprits)
        return self.fail(
            f"{ranks} alone waited in {cause.what}{for_seconds(cause.seconds)}, and no other rank came",
            why=f"{ranks.capitalize()} called something that is a collective, and the other ranks did not: code under "
            "a condition on the rank, such as an evaluation through the wrapped model or a metric.",
            fix="use model.module in code that one rank runs alone, or take the condition away\n"
            "TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 names the line",
            **cause_fields(cause),
        )
