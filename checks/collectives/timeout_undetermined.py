from signal import SIGTERM

from ddpdoctor.blame.causes import GaveUp
from ddpdoctor.blame.wording import cause_fields, for_seconds, who
from ddpdoctor.check import Check, reports
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Ended, Line, Log, Raised, log_fields
from ddpdoctor.logs.stall import find_stall, judge_stall
from ddpdoctor.model import Confidence, Family, Finding, Judgement, Role, Source

_COLLECT = (
    "TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH "
    "torchrun --log-dir logs --tee 3 ...\nddpdoctor explain logs"
)


class TimeoutUndetermined(Check):
    """The job failed, and the output does not show why.

    What it finds:
        A failure whose cause is not in the output: a timeout in which every rank waited at the same place, or a
        process that ended without a word. What the output does show, and what to collect next.

    Why it matters:
        A guess sends people to the wrong place for days. What is missing is mostly one variable away.

    Example:
        Every rank times out in its first collective: they agree on what to do, and data does not pass between them.
        Which part of the path is to blame, a timeout does not say.

    Fix:
        Run it once more with the flight recorder and NCCL's log, and keep every rank's output:
            TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 NCCL_DEBUG=INFO torchrun --log-dir logs --tee 3 ...
    """

    code = "DD312"
    name = "timeout-undetermined"
    family = Family.COLLECTIVES
    title = "the output shows why the job failed"
    names_no_cause_in = (Source.LOG,)

    def examine_log(self, log: Log) -> Judgement:
        if find_stall(log):
            return judge_stall(self, log)
        # A launcher ends the others by SIGTERM after the first failure.
        ended = min(
            (one for one in log.ended if one.code), key=lambda one: one.code == -SIGTERM, default=None
        )
        if ended:
            return [self._ended(ended)]
        return [self._hung(log.hung)] if log.hung else NOT_IN_OUTPUT

    @reports(GaveUp)
    def _gave_up(self, cause: GaveUp) -> Finding:
        path = (
            "It was the first collective, which suggests the path between the ranks rather than the script. "
            "Whether a run with NCCL_P2P_DISABLE=1 or NCCL_SOCKET_IFNAME=lo gets further tells more. "
        )
        ranks = who(cause.waiting) if cause.waiting else "ranks"
        return self.fail(
            f"{ranks} waited in {cause.what}{for_seconds(cause.seconds)}, and the output does not show why",
            why=f"Every rank that speaks waited at the same place, so none of them is to blame. "
            f"{path if cause.first else ''}A watchdog reports that time has run out, and not what kept the data.",
            fix=_COLLECT,
            **cause_fields(cause),
        )

    def _ended(self, ended: Ended) -> Finding:
        who = "a process" if ended.rank is None else f"rank {ended.rank}"
        return self._finding(
            f"{who} ended with exit status {ended.code}, and the output does not show why",
            "The launcher tells that it ended. Its own output is not here, or it said nothing.",
            (ended.line,),
            () if ended.rank is None else (ended.rank,),
        )

    def _hung(self, line: Line) -> Finding:
        return self._finding(
            "the job stopped going on, and the output does not show why",
            "No rank reported a failure before the output ends.",
            (line,),
            (),
        )

    def _finding(
        self, headline: str, why: str, told: tuple[Line | Raised, ...], ranks: tuple[int, ...]
    ) -> Finding:
        return self.fail(
            headline,
            why=why,
            fix=_COLLECT,
            confidence=Confidence.CERTAIN,
            **log_fields(*told, role=Role.UNKNOWN, ranks=ranks),
        )
