from collections.abc import Callable

from ddpdoctor.check import Check, Finding, Judgement, Kind, Passed, Where
from ddpdoctor.recorder.events.training import Progress
from ddpdoctor.trace import Recording, Trace
from ddpdoctor.trace.drift import Drift, courses_of, drifts_of
from ddpdoctor.trace.drift import Kind as What

_FIXES = {
    What.PACE: "py-spy dump --pid PID    # of a rank, now; compare clocks and temperatures of nvidia-smi, and other\n"
    "jobs on the host, with what they were before that step",
    What.MEMORY: "total_loss += loss.item()    # not total_loss += loss, which keeps the graph of every step; or look\n"
    "for lists, caches and metrics that grow by a step's tensors",
    What.LOSS: "compare the samples that this rank reads from that step on, and its weights, with another rank's",
    What.SAVES: "look at what the file system is shared with, how full it is, and whether old checkpoints are removed",
}
_DATA = (
    "look at what the DataLoader reads from that step on: storage shared with other jobs, a cache that no longer fits "
    "in memory, larger files"
)


class RunDrifts(Check):
    """A long run gets slower, or its memory grows, or the losses of its ranks diverge.

    What it finds:
        What changes over hours and stays so: training that slows by 15 % or more, and whether waits for the DataLoader
        explain it; memory of a rank that grows by 64 MiB and 10 % or more and does not cease to; the loss of one rank
        that leaves that of the others by a quarter; checkpoints that take one and a half times as long. Pieces of the
        run with equally many steps are compared; a slower pace that no wait for data explains is reported in runs of
        ten minutes and more. A change is one that happens by chance once in a thousand runs and lasts; the step where
        it began has an interval of 95 % confidence.

    Why it matters:
        A run of days loses hours to it, or ends when memory is full, and no single step shows it.

    Example:
        losses.append(loss)      # each keeps the graph of its step: memory grows until the rank is killed

    Fix:
        Compare what the run does after that step with what it did before. A change that the script makes on purpose,
        such as longer samples from an epoch on, is no fault.
    """

    code = "DD609"
    title = "pace, memory and losses of a long run stay as they are"

    def examine_run(self, trace: Trace) -> Judgement:
        self.require(not trace.rehearsal, "a rehearsal shows nothing of speed")
        recordings = trace.training()
        told = {rank: recording.events(Progress) for rank, recording in recordings.items()}
        courses = self.require(courses_of(told), "the run was too short to change")
        drifts = drifts_of(courses, told, {rank: recording.saves for rank, recording in recordings.items()})
        return [self._changed(drift, recordings[drift.ranks[0]]) for drift in drifts] or Passed(
            "pace, memory and losses stay as they are"
        )

    def _changed(self, drift: Drift, recording: Recording) -> Finding:
        low, high = drift.interval
        return self.warn(
            drift.sentence,
            why=f"It began between the steps {low:,} and {high:,}, with 95 % confidence, and lasted until the end of "
            "what was recorded.",
            fix=_DATA if drift.waits_for_data else _FIXES[drift.kind],
            ranks=drift.waits_for_data or drift.ranks,
            where=_WHERE[drift.kind](recording, drift),
            about=Kind.METRIC.of(drift.kind.value),
            explained_by=("DD206",) if drift.kind is What.LOSS else (),
        )


def _update(recording: Recording, _: Drift) -> Where | None:
    last = recording.steps[-1] if recording.steps else None
    return last.optimizer_steps[-1].at if last and last.optimizer_steps else None


_WHERE: dict[What, Callable[[Recording, Drift], Where | None]] = {
    What.PACE: lambda recording, _: next((it.at for it in reversed(recording.training_passes)), None),
    What.MEMORY: _update,
    What.LOSS: _update,
    What.SAVES: lambda _, drift: drift.save.at if drift.save else None,
}
