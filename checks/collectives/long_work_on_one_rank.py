from collections.abc import Sequence

from ddpdoctor.blame.causes import BusyInOutput, WorkInOutput, WorksAlone
from ddpdoctor.blame.frames import where_of
from ddpdoctor.blame.wording import all_do, for_seconds, others_wait, verb, who
from ddpdoctor.check import Finding, Judgement, Passed, reports
from ddpdoctor.frameworks import by_framework
from ddpdoctor.hang.heartbeats import NOW, Heartbeat, read_heartbeat
from ddpdoctor.logs.stall import judge_stall
from ddpdoctor.text import by_state, ranks_phrase, shorten
from ddpdoctor.trace import RankTrace, Trace
from ddpdoctor.trace.recorded_job import HangCheck


class LongWorkOnOneRank(HangCheck):
    """One rank works outside collectives until the others reach the timeout.

    What it finds:
        In a job that hangs, a rank that computes, reads, writes or sleeps outside collectives while the others wait
        in one, with both lines. In job output, a progress bar (of a download, a tokenizer, an index) that had run
        for as long as the timeout of the process group.

    Why it matters:
        The others wait in a collective until the timeout of the process group, 10 or 30 minutes by default. It ends the
        job, often minutes before the work is done, with errors that name the collective and not the work.

    Example:
        if rank == 0:
            dataset.map(tokenize)      # 40 minutes
        dist.barrier()                 # the others time out after 30

    Fix:
        Do the work before the launch, or a part of it on every rank; or raise the timeout of the process group:
            dist.init_process_group(timeout=timedelta(hours=2))
    """

    code = "DD306"
    title = "no rank works alone while the others wait"
    fix_with = by_framework(
        "do the work before the launch, or divide it among the ranks; or\n",
        lightning="Trainer(strategy=DDPStrategy(timeout=timedelta(hours=2)))",
        fabric="Fabric(strategy=DDPStrategy(timeout=timedelta(hours=2)))",
        transformers="TrainingArguments(..., ddp_timeout=7200)",
        accelerate="Accelerator(kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(hours=2))])",
        ray="TorchTrainer(..., torch_config=TorchConfig(timeout_s=7200))",
    )
    explained_by = ("DD005", "DD011", "DD315")

    @reports(WorksAlone)
    def _works_alone(self, cause: WorksAlone) -> Finding:
        waiting = cause.waiting
        timeout = "10 or 30 minutes" if cause.timeout is None else f"{cause.timeout:.0f} s"
        report = self.warn if cause.out_of_time else self.fail
        return report(
            f"{all_do(cause.culprits, cause.state)}{for_seconds(cause.seconds)}, while {others_wait(cause)}",
            why="A collective ends when every rank of its group has joined it. "
            f"{who(waiting).capitalize()} {verb(waiting, 'fails', 'fail')} at the timeout of the process group, "
            f"{timeout}, with an error that names the collective and not this line.",
        )

    def examine_ended(self, trace: Trace) -> Judgement:
        ended, given_up = trace.overdue()
        if ended:
            return self._overdue(ended, given_up)
        trace.require_end()
        return Passed(f"no rank kept the others waiting in {trace.seconds:.1f} s")

    def _overdue(self, ended: Sequence[RankTrace], given_up: Sequence[RankTrace]) -> Finding:
        late, waiting = tuple(rank.rank for rank in ended), tuple(rank.rank for rank in given_up)
        beats = {rank.rank: beat.at for rank in ended if (beat := _last_heartbeat(rank)) and beat.at}
        failures = {rank.rank: shorten(rank.failure.message, 200) for rank in given_up if rank.failure}
        return self.fail(
            f"{who(late)} {verb(late, 'was', 'were')} still at work when {who(waiting)} gave up waiting, at the "
            "timeout of the process group",
            why=f"The launcher ended {who(late)} by SIGTERM after {who(waiting)} had failed. A collective fails when a "
            "rank does not join it within the timeout.",
            ranks=late,
            where=next((where_of(frame) for frame in beats.values()), None),
            evidence=(*by_state({rank: f"at {frame}" for rank, frame in beats.items()}), *by_state(failures)),
        )

    examine_log = judge_stall

    @reports(BusyInOutput)
    def _busy_in_output(self, cause: BusyInOutput) -> Finding:
        busy, waiting = who(cause.culprits), who(cause.waiting)
        return self.fail(
            f"{busy} did not reach the barrier in which {waiting} waited{for_seconds(cause.seconds)}, "
            "and was still running",
            why=f"{busy.capitalize()} neither failed nor ended: the launcher ended it after {waiting} had given up. It "
            "worked for longer than a collective may take, or waits for something else.",
        )

    @reports(WorkInOutput)
    def _work_in_output(self, cause: WorkInOutput) -> Finding:
        time = f"{cause.took / 60:.0f} minutes" if cause.took >= 120 else f"{cause.took:.0f} s"
        whose = ranks_phrase(cause.culprits, "one rank")
        state = f"{'not' if cause.percent is None else f'{cause.percent} %'} done after {time}"
        return self.fail(
            f"{whose}'s work was {state}, and the others' wait for it timed out",
            why="The progress bar had run for as long as the timeout of a collective. The ranks without it waited in "
            f"{cause.what} for the rank that shows it.",
        )


def _last_heartbeat(rank: RankTrace) -> Heartbeat | None:
    """Where the rank said last that it is."""
    file = rank.recording.record.file if rank.recording else None
    return read_heartbeat(file.with_suffix(NOW)) if file else None
