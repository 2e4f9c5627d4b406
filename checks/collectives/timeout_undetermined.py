from signal import SIGTERM

from ddpdoctor.blame.causes import GaveUp
from ddpdoctor.blame.wording import for_seconds, who
from ddpdoctor.check import Check, Finding, Judgement, Role, Source, reports
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, log_fields
from ddpdoctor.logs.secondary_errors import is_of_the_launcher
from ddpdoctor.logs.stall import find_stall, judge_stall
from ddpdoctor.text import ranks_phrase


class TimeoutUndetermined(Check):
    """The job failed, and the output does not show why.

    What it finds:
        A failure whose cause is not in the output: a timeout of ranks that waited for others of which the output has
        nothing, or a process that ended without an error message. It reports what the output shows, and what to
        collect next.

    Why it matters:
        The output names no cause, and often one more variable would make it do so.

    Example:
        Every rank times out in its first collective: data does not pass between them, but a timeout does not say
        which part of the path fails.

    Fix:
        Run it again with the flight recorder and NCCL's log, and keep every rank's output:
            export TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 NCCL_DEBUG=INFO
            NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH torchrun --log-dir logs --tee 3 ...
            ddpdoctor explain logs
    """

    code = "DD312"
    title = "the output shows why the job failed"
    names_no_cause_in = (Source.LOG,)

    def examine_log(self, log: Log) -> Judgement:
        if find_stall(log):
            return judge_stall(self, log)
        # A launcher ends the others by SIGTERM after the first failure.
        ends = sorted((end for end in log.ended if end.code), key=lambda end: end.code == -SIGTERM)
        if end := next(iter(ends), None) or next(filter(is_of_the_launcher, log.fatal), None):
            how = f"{ends[0].who} ended with exit status {ends[0].code}" if ends else "a process failed"
            return self.fail(
                f"{how}, and the output does not show why",
                why="The launcher reports its end. Its own output is not here, or contains no error message.",
                **log_fields(end, role=Role.UNKNOWN),
            )
        if log.cut_off:
            details = log_fields(log.cut_off, role=Role.UNKNOWN)
            return self.fail(
                f"the output ends in the middle of a traceback of {ranks_phrase(details['ranks'], 'a process')}",
                why="The last line of a traceback, which names the exception, is missing: the output "
                "was copied while the job ran, or what wrote it was killed.",
                **details,
            )
        if log.hung is None:
            return NOT_IN_OUTPUT
        return self.fail(
            "the job stopped making progress, and the output does not show why",
            why="No rank reported a failure before the output ends.",
            **log_fields(log.hung, role=Role.UNKNOWN, ranks=()),
        )

    @reports(GaveUp)
    def _gave_up(self, cause: GaveUp) -> Finding:
        path = (
            "It was the first collective, which points to the path between the ranks rather than to the script. "
            "Try whether a run with NCCL_P2P_DISABLE=1 or NCCL_SOCKET_IFNAME=lo gets further. "
        )
        ranks = who(cause.waiting) if cause.waiting else "ranks"
        return self.fail(
            f"{ranks} waited in {cause.what}{for_seconds(cause.seconds)}, and the output does not show why",
            why="These ranks waited for others, and none of those left a line in this output that says why. "
            f"{path if cause.first else ''}A watchdog reports the timeout, and not what blocked the data.",
        )
