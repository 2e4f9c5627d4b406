from ddpdoctor.check import Check
from ddpdoctor.judge import NotMeasured
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, log_fields
from ddpdoctor.model import Family, Judgement, Passed, Role, Skipped
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import Trace

_WARNED = r"destroy_process_group\(\) was not called before program exit|process group has NOT been destroyed before"
_WHY = (
    "The group is then torn down with the interpreter, in no particular order: NCCL warns about it, and a rank may "
    "wait for one that has gone."
)
_FIX = "try:\n    main()\nfinally:\n    dist.destroy_process_group()"


class NotShutDown(Check):
    """A script ends without destroying its process group.

    What it finds:
        Ranks that came to the end of the script and never called destroy_process_group; and NCCL's warning of it in
        the output of a job that did not fail. What happens to a process
        after its script's end, an abort in gloo for instance, is not held against the script.

    Why it matters:
        The group is torn down while the interpreter is, in an order that nobody chose: NCCL warns, may wait for
        ranks that have gone, and now and then aborts, which a launcher counts as a failed job.

    Example:
        if __name__ == "__main__":
            main()                    # sets up a process group and returns

    Fix:
        Destroy it on every way out:
            try:
                main()
            finally:
                dist.destroy_process_group()
    """

    code = "DD310"
    name = "not-shut-down"
    family = Family.COLLECTIVES
    title = "the process group is destroyed at the end"

    log_words = ("destroy_process_group", "NOT been destroyed")

    def examine_run(self, trace: Trace) -> Judgement:
        recordings = trace.recordings()
        ended = {
            rank: one
            for rank, one in recordings.items()
            if one.exit is not None and one.exit.how in ("returned", "exit") and one.raised is None
        }
        if not ended:
            raise NotMeasured(trace.broken or "the script was ended before its own end")
        joined = {rank: one for rank, one in ended.items() if any(g.action == "init" for g in one.groups)}
        kept = [rank for rank, one in joined.items() if not any(g.action == "destroy" for g in one.groups)]
        if not kept:
            return Passed(f"{ranks_phrase(ended)} destroyed the process group")
        made = next(g.at for g in joined[kept[0]].groups if g.action == "init")
        return [
            self.info(
                f"{ranks_phrase(kept)} ended without destroy_process_group",
                why=_WHY,
                fix=_FIX,
                ranks=tuple(kept),
                where=made,
            )
        ]

    def examine_log(self, log: Log) -> Judgement:
        lines = log.find(_WARNED)
        if not lines:
            return NOT_IN_OUTPUT
        if log.failed:
            return Skipped("the job failed, and did not come to its end")
        headline = "the job ended without destroy_process_group"
        return [self.info(headline, why=_WHY, fix=_FIX, **log_fields(*lines[:8], role=Role.MESSENGER))]
