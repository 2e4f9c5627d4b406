from statistics import median

from ddpdoctor.check import Check
from ddpdoctor.model import Finding, Judgement, Passed, Where
from ddpdoctor.outliers import by_state
from ddpdoctor.text import duration, plural
from ddpdoctor.trace import Trace
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.step_times import Steps, own_time, paced_steps, typical

LEAST_SHARE = 0.3
"""Of a training step, from which the others' waiting matters."""
LEAST_SECONDS = 0.02
"""Below this, ranks that share CPUs differ by their turns."""
IN_STEPS = 0.8
"""The share of steps in which the same rank has to be the slowest."""
PHASES = {"data": "loading data", "forward": "its forward", "other": "the script's own code"}


class Straggler(Check):
    """One rank is slower than the others in nearly every step.

    What it finds:
        A rank that spends far more time than the others in loading data, in forward, or in code between them, in
        at least four of five steps: which rank, in which phase, and how much. Time in backward and in
        collectives is waiting, and is not counted.

    Why it matters:
        Each backward ends when every rank has given its gradients, so all ranks run at the pace of the slowest.

    Example:
        Rank 0 alone logs images, or one rank reads from a slower disk.

    Fix:
        Take the work from the hot path of that rank: log less often, move it to another process, divide the data
        so that each rank gets samples of like size.
    """

    code = "DD601"
    title = "no rank is slower than the others in every step"

    def examine_run(self, trace: Trace) -> Judgement:
        recordings = trace.training_of_several()
        steps = paced_steps(trace)
        slow = [finding for phase in PHASES if (finding := self._slow_in(phase, steps, recordings))]
        whole = median(typical(step, "total") for step in steps.values())
        return slow or Passed(f"no rank holds up the others; a training step takes {duration(whole)}")

    def _slow_in(self, phase: str, steps: Steps, recordings: dict[int, Recording]) -> Finding | None:
        times = {rank: typical(step, phase) for rank, step in steps.items()}
        slow = max(times, key=lambda rank: times[rank])
        others = median(times[rank] for rank in times if rank != slow)
        # Other processes of the machine may have had the CPU: that tells of them, and not of the rank.
        lost = times[slow] - others - typical(steps[slow], "cpu_wait")
        count = len(steps[slow])
        if lost < max(LEAST_SECONDS, LEAST_SHARE * typical(steps[slow], "total")):
            return None
        if _share_slowest(steps, slow, phase, lost) < IN_STEPS:
            return None
        return self.warn(
            f"rank {slow} takes {duration(lost)} longer than the others in {PHASES[phase]}, in each training step",
            why="The other ranks wait for it in backward: a step takes "
            f"{duration(typical(steps[slow], 'total'))}, of which they wait {duration(lost)}.",
            fix=f"py-spy record --duration 30 --pid PID    # of rank {slow} and of another one; compare: logging, "
            "saving, larger samples, a slower disk",
            ranks=(slow,),
            where=_where(recordings[slow], phase),
            evidence=by_state(
                times, lambda s: f"{duration(s)} in {PHASES[phase]}, median of {plural(count, 'step')}"
            ),
        )


def _share_slowest(steps: Steps, slow: int, phase: str, lost: float) -> float:
    """In how many steps this rank is slower than every other by at least half of what it loses."""
    times = {rank: [own_time(step, phase) for step in of_rank] for rank, of_rank in steps.items()}
    others: list[float] = [
        max(row) for row in zip(*(times[rank] for rank in times if rank != slow), strict=True)
    ]
    gaps = (mine - other for mine, other in zip(times[slow], others, strict=True))
    return sum(gap > lost / 2 for gap in gaps) / len(others)


def _where(recording: Recording, phase: str) -> Where | None:
    """The loop for data, the forward for forward, and else the update that closes the step."""
    last = recording.steps[-1]
    if phase == "data":
        return next((pass_.at for pass_ in reversed(recording.training_passes)), None)
    if phase == "forward" and last.forwards:
        return last.forwards[-1].at
    return last.optimizer_steps[-1].at if last.optimizer_steps else None
