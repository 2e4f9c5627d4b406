from ddpdoctor.blame.causes import WorkInOutput, WorksAlone
from ddpdoctor.blame.wording import all_do, cause_fields, for_seconds, others_wait, verb, who
from ddpdoctor.check import reports
from ddpdoctor.judge import NotMeasured
from ddpdoctor.logs.log import Log
from ddpdoctor.logs.stall import judge_stall
from ddpdoctor.model import Family, Finding, Judgement, Passed
from ddpdoctor.trace import Trace
from ddpdoctor.trace.standstill_check import StandstillCheck


class LongWorkOnOneRank(StandstillCheck):
    """One rank works outside collectives while the others wait toward the timeout.

    What it finds:
        In a job that stands still, a rank that computes, reads, writes or sleeps outside collectives while the others
        wait in one: its line, and theirs. In a log, a progress bar, of a download, a tokenizer or an index, that had
        run for as long as the process group waits.

    Why it matters:
        The others' timeout ends the job, mostly minutes before the work would have been done, and their errors speak
        of a collective and not of the work.

    Example:
        if rank == 0:
            dataset.map(tokenize)      # 40 minutes
        dist.barrier()                 # the others give up after 30

    Fix:
        Do the work before the launch, or give the group the time it takes:
            dist.init_process_group(timeout=timedelta(hours=2))
    """

    code = "DD306"
    name = "long-work-on-one-rank"
    family = Family.COLLECTIVES
    title = "no rank works alone while the others wait"
    explained_by = ("DD005",)

    @reports(WorksAlone)
    def _works(self, cause: WorksAlone) -> Finding:
        waiting = cause.waiting
        timeout = "10 or 30 minutes" if cause.timeout is None else f"{cause.timeout:.0f} s"
        speaks = verb(waiting, "its error speaks", "their errors speak")
        report = self.warn if cause.out_of_time else self.fail
        return report(
            f"{all_do(cause.culprits, cause.state)}{for_seconds(cause.seconds)}, while {others_wait(cause)}",
            why=f"A collective ends when every rank of its group has joined it. {who(waiting).capitalize()} "
            f"{verb(waiting, 'gives', 'give')} up at the timeout of the process group, {timeout}, and {speaks} of the "
            "collective and not of this line.",
            fix="do the work before the launch, or a part of it on every rank; or give the group the time it takes:\n"
            "dist.init_process_group(timeout=timedelta(hours=2))",
            **cause_fields(cause),
        )

    def examine_ended(self, trace: Trace) -> Judgement:
        if trace.broken:
            raise NotMeasured(trace.broken)
        return Passed(f"no rank kept the others waiting in {trace.seconds:.1f} s")

    def examine_log(self, log: Log) -> Judgement:
        return judge_stall(self, log)

    @reports(WorkInOutput)
    def _work_in_output(self, cause: WorkInOutput) -> Finding:
        time = f"{cause.took / 60:.0f} minutes" if cause.took >= 120 else f"{cause.took:.0f} s"
        return self.fail(
            f"one rank's work was {cause.percent} % done after {time}, and the others' wait for it ran out of time",
            why="The progress bar had run for as long as a collective may take. The ranks without it waited in "
            f"{cause.what} for the one that shows it, and gave up.",
            fix="do the work before the launch, or on every rank its part\n"
            "dist.init_process_group(timeout=timedelta(hours=2))     # ddp_timeout=7200 in transformers",
            **cause_fields(cause),
        )
