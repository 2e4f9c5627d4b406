from ddpdoctor.blame.causes import AloneInOutput, CalledAlone, LeftCallOut
from ddpdoctor.blame.wording import for_seconds, who
from ddpdoctor.check import Finding, Judgement, NotMeasured, Passed, Where, reports
from ddpdoctor.frameworks import CALLED_BY_ALL
from ddpdoctor.logs.stall import judge_stall
from ddpdoctor.program import Origin, Program
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import Trace, shown_at
from ddpdoctor.trace.recorded_job import HangCheck
from ddpdoctor.trace.sequence import called_alone, divergence_of
from ddpdoctor.unreached.decisions import called_by_some
from ddpdoctor.unreached.lines import Decision, UnreachedLines

_FIX_FORWARD = "model.module(x)     # the module without DDP: its forward waits for no rank"
_FIX_DECISION = (
    "call it on every rank, or decide on one for all of them:\n"
    "decision = torch.tensor(float(condition))    # this rank's\ndist.broadcast(decision, src=0)\n"
    "if decision.item():\n    ...    # the collective"
)
_WHY = (
    "Whether a rank comes to it is decided by {}: {}. A collective needs every rank of its group: those that came wait "
    "until the timeout, or are matched with a different collective of the others."
)
_FIX_CALL = "call it on every rank, outside the condition on the rank\nif rank == 0:\n    ...    # no collectives here"


class CollectiveOnSomeRanks(HangCheck):
    """A collective runs on some ranks only.

    What it finds:
        The few ranks, mostly rank 0 alone, that waited in a collective that the others never called; in a run that
        broke or hangs also the line of the call, and what the others called instead.

    Why it matters:
        A collective needs every rank of its group. Code under `if rank == 0` often contains one: the forward of a DDP
        model that has buffers, a metric's compute(), a save that gathers. Rank 0 then waits until the timeout, or is
        matched with a different collective of the others.

    Example:
        if rank == 0:
            evaluate(model)      # model is a DDP model: its forward broadcasts buffers, and no other rank joins

    Fix:
        Use the module without DDP (model.module) where one rank works alone, or let all ranks take part.
    """

    code = "DD303"
    title = "collectives run on every rank"
    fix_with = CALLED_BY_ALL
    explained_by = ("DD005", "DD011", "DD106", "DD204", "DD214", "DD225", "DD308")
    unreached = (called_by_some, "{ranks} would call {what}, under {test}")

    def examine_ended(self, trace: Trace) -> Judgement:
        diverged = divergence_of(trace)
        if diverged is None:
            trace.require_end()
            return Passed(f"{ranks_phrase(trace.recordings())} issued the same collectives")
        cause = called_alone(diverged, trace.recordings())
        if cause is None:
            raise NotMeasured("ranks diverged, but not by a collective on some ranks")
        return [self._called_alone(cause)]

    @reports(CalledAlone)
    def _called_alone(self, cause: CalledAlone) -> Finding:
        ranks, others = who(cause.culprits), who(cause.others.ranks)
        instead = f", while {others} went on to {cause.others.text}"
        if cause.position:
            instead = f" at {cause.position}, where {others} called {cause.others.text}"
        leads = shown_at("called under a condition on the rank", cause.led_by)
        is_decided, decision = _decided(cause.where)
        return self.fail(
            f"only {ranks} called {cause.call}{instead}",
            fix=_FIX_FORWARD if cause.of_forward else _FIX_DECISION if is_decided else _FIX_CALL,
            evidence=(*leads, *(decision.evidence if decision else ()), *cause.states),
            **({"why": _WHY.format(decision.text, decision.because)} if decision else {}),
        )

    @reports(LeftCallOut)
    def _left_call_out(self, cause: LeftCallOut) -> Finding:
        return self.fail(
            f"{who(cause.culprits)} skipped {cause.call} at {cause.position}, which {who(cause.others)} called",
            fix=_FIX_CALL,
        )

    examine_log = judge_stall

    @reports(AloneInOutput)
    def _alone_in_output(self, cause: AloneInOutput) -> Finding:
        waited = f"only {who(cause.culprits)} waited in {cause.what}{for_seconds(cause.seconds)}"
        return self.fail(
            f"{waited}, and no other rank joined",
            fix="use model.module in code that one rank runs alone, or call it on every rank\n"
            "TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 torchrun ...     # names the line",
        )


def _decided(where: Where | None) -> tuple[bool, Decision | None]:
    """Whether what leads to a call is a condition, and none on the rank; and why ranks may see it differently, as far
    as the source tells."""
    program = Program.holding(where) if where else None
    conditions = program.conditions_leading_to(where) if program and where else []
    conditions = [it for it in conditions if not it.test.only(Origin.ENVIRONMENT)]
    if program is None or any(Origin.RANK in it.test.origins.kinds for it in conditions):
        return False, None
    decisions = map(UnreachedLines(program).decision, conditions)
    return bool(conditions), next((it for it in decisions if it), None)
