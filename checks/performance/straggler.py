from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from statistics import median

from ddpdoctor.check import Check, Evidence, Finding, Judgement, Passed, Where
from ddpdoctor.text import duration, ranks_do
from ddpdoctor.trace import Recording, Trace
from ddpdoctor.trace.stragglers import MODEL, Loss, Pairs, paced_steps, typical

PHASES = {
    "data": "loading data",
    "forward": "its forward",
    "backward": "its backward",
    MODEL: "its forward and backward",
    "step": "its optimizer's step",
    "collective": "collectives, without waiting",
    "other": "the script's own code",
}
SHOWN = {"other": "own code", "step": "optimizer", "collective": "collectives"}
LEAST_SHOWN = 1e-4
"""Seconds of a phase."""


class Straggler(Check):
    """One rank is slower than the others.

    What it finds:
        A rank that works longer than the others in a training step, in most steps or in every few: which rank, how
        much longer, in which phase, and at which line. Only a rank's own work counts: loading data, forward,
        backward, the optimizer and the code between them. What it waits for other ranks in backward and in
        collectives, and for a free CPU, does not.

    Why it matters:
        Each backward ends when every rank has given its gradients, so all ranks run at the pace of the slowest.

    Example:
        Rank 0 alone logs images, or one rank reads from a slower disk.

    Fix:
        Take the work from the hot path of that rank: log less often, move it to another process, divide the data
        so that each rank gets samples of like size.
    """

    code = "DD601"
    title = "no rank is slower than the others"
    timed = True

    def examine_run(self, trace: Trace) -> Judgement:
        recordings = trace.training_of_several()
        steps = paced_steps(trace)
        pairs = Pairs(steps, recordings)
        at_line = defaultdict[tuple[str, Where | None, bool], list[Loss]](list)
        for loss in pairs.losses():
            where = loss.line or _where(recordings[loss.rank], loss.phase)
            at_line[loss.phase, where, loss.of > len(loss.steps)].append(loss)
        found = [self._slow(pairs, where, losses) for (_, where, _), losses in at_line.items()]
        whole = median(typical(step, "total") for step in steps.values())
        return found or Passed(f"no rank holds up the others; a training step takes {duration(whole)}")

    def _slow(self, pairs: Pairs, where: Where | None, losses: Sequence[Loss]) -> Finding:
        most = max(losses, key=lambda loss: loss.seconds)
        ranks, positions = tuple(loss.rank for loss in losses), most.steps
        some = len(positions) < most.of
        which = f"{len(positions)} of {most.of} training steps" if some else "each training step"
        whole = duration(pairs.mean(most.others, "total", positions))
        waited = duration(pairs.mean(most.others, "waits", positions))
        low, high = map(duration, most.interval)
        mostly = "mostly " if most.in_all else ""
        return self.warn(
            f"{ranks_do(ranks, 'take')} {duration(most.seconds)} longer than the others in {which}, {mostly}in "
            f"{PHASES[most.phase]}",
            why=f"The others wait for it: such a step takes {whole}, of which they wait {waited}. Compared step by "
            f"step, it is {low} to {high} longer{'' if some else ' on average, with 99 % confidence'}.",
            fix=_fix(most),
            ranks=ranks,
            where=where,
            evidence=tuple(_evidence(pairs, most)),
        )


def _fix(loss: Loss) -> str:
    if loss.line is None:
        return (
            f"py-spy record --duration 30 --pid PID    # of rank {loss.rank} and of another one; compare: logging, "
            "saving, larger samples, a slower disk"
        )
    if loss.phase == "data":
        return (
            f"compare what loads the samples of rank {loss.rank} with another one: storage, CPUs for its workers, "
            "size of its samples"
        )
    if loss.phase in ("forward", "backward", "step", MODEL):
        return f"give rank {loss.rank} samples of the same size as the others: sort by length, then deal them out"
    at = f"{PurePath(loss.line.file).name}:{loss.line.line}"
    return (
        f"do what {at} does less often, in another process, or before training; or divide it among the ranks"
    )


def _evidence(pairs: Pairs, loss: Loss) -> Iterator[Evidence]:
    """Of the slow rank, and on average of those that it is compared with: parts that add up to what it is slower."""
    for ranks in ((loss.rank,), loss.others):
        parts = pairs.phases(ranks, loss.steps)
        shown = sorted((item for item in parts.items() if item[1] >= LEAST_SHOWN), key=lambda item: -item[1])
        listed = ", ".join(f"{SHOWN.get(phase, phase)} {duration(seconds)}" for phase, seconds in shown)
        waits = duration(pairs.mean(ranks, "waits", loss.steps))
        at = loss.line if loss.rank in ranks else None
        yield Evidence(f"works {duration(sum(parts.values()))}: {listed}; waits {waits}", ranks, at)


def _where(recording: Recording, phase: str) -> Where | None:
    """The loop for data, else the call of the phase, and the update for what lies between."""
    last = recording.steps[-1]
    if phase == "data":
        return next((pass_.at for pass_ in reversed(recording.training_passes)), None)
    if phase == "forward" and last.forwards:
        return last.forwards[-1].at
    if phase == "backward" and last.backwards:
        return last.backwards[-1].at
    return last.optimizer_steps[-1].at if last.optimizer_steps else None
