from collections.abc import Mapping

from ddpdoctor.check import Check
from ddpdoctor.judge import NotMeasured
from ddpdoctor.model import Evidence, Family, Finding, Judgement, Passed
from ddpdoctor.text import plural, ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.leaving import (
    backwards_of,
    begun,
    forwards_of,
    is_in_a_step,
    last_pass,
    leavers,
    left_at,
    left_out,
    left_out_at,
    skipped_at,
    skipped_step,
    skippers,
)
from ddpdoctor.trace.odd import by_state
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.verdict import claim
from ddpdoctor.trace.verdict.left import LEAVE_OUT_TOGETHER, WHY_LEFT_OUT


class LocalDecision(Check):
    """Ranks left a loop at different steps, by a decision that each took for itself.

    What it finds:
        A run that broke or stands still because some ranks went on with a loop that others had left: they stopped
        early on a loss, a count or a time of their own, although each had as many batches; or left out the backward
        of one step.

    Why it matters:
        Each backward of DDP needs every rank. The ranks that go on wait for those that have left, until the
        timeout; or their all-reduce meets a barrier or an evaluation of the others, and fails. It happens after
        hours, when the values of two ranks first fall on different sides of a threshold.

    Example:
        for epoch in range(100):
            train(model)
            if validation_loss > best:      # of this rank's own shard
                break

    Fix:
        Decide once and tell everybody:
            stop = torch.tensor([float(validation_loss > best)])
            dist.broadcast(stop, src=0)
            if stop.item():
                break
    """

    code = "DD308"
    name = "local-decision"
    family = Family.COLLECTIVES
    title = "ranks leave their loops together"
    explained_by = ("DD005", "DD106", "DD204", "DD214")

    def examine_run(self, trace: Trace) -> Judgement:
        hung = claim(self, trace)
        if hung:
            return hung
        seen = trace.training_of_several()
        if trace.broken is None:
            return Passed(f"{ranks_phrase(seen)} left every loop together")
        first = trace.first_to_break()
        failed_by_itself = first is not None and not first.is_victim
        if trace.out_of_time or (failed_by_itself and not trace.timed_out):
            raise NotMeasured(trace.broken)
        # Who was ended by the launcher stood in a backward, mostly.
        stopped = [rank for rank, one in seen.items() if not (one.exit or one.raised) and is_in_a_step(one)]
        skipped = skippers(seen, stopped)
        if skipped and len(skipped) < len(seen):
            return [self._skipped(seen, tuple(skipped))]
        steps = {rank: one.step_count or len(one.steps) for rank, one in seen.items()}
        early = tuple(leavers(seen))
        if not early or len(early) == len(steps):
            raise NotMeasured(trace.broken)
        fewer = left_out(seen, early[0])
        return [self._left_out(seen, early, fewer) if fewer else self._decided(seen, early, steps)]

    def _skipped(self, seen: Mapping[int, Recording], ranks: tuple[int, ...]) -> Finding:
        step = skipped_step(seen[ranks[0]])
        others = [rank for rank in seen if rank not in ranks]
        return self.fail(
            f"{ranks_phrase(ranks)} left out the backward of training step {step.index if step else '?'}, which "
            f"{ranks_phrase(others)} ran",
            why="Each backward of DDP needs every rank. Whether to run it was decided from values of one rank alone, "
            "so from there on the ranks averaged gradients of different steps, until some waited for one that never "
            "came.",
            fix=LEAVE_OUT_TOGETHER,
            ranks=ranks,
            where=skipped_at(seen[ranks[0]]),
            evidence=by_state(
                {
                    rank: f"{plural(len(forwards_of(one)), 'forward')}, {plural(len(backwards_of(one)), 'backward')}"
                    for rank, one in seen.items()
                }
            ),
        )

    def _left_out(self, seen: Mapping[int, Recording], early: tuple[int, ...], fewer: int) -> Finding:
        others = [rank for rank in seen if rank not in early]
        return self.fail(
            f"{ranks_phrase(early)} left out {plural(fewer, 'training step')}, which "
            f"{ranks_phrase(others)} made",
            why=WHY_LEFT_OUT,
            fix=LEAVE_OUT_TOGETHER,
            ranks=early,
            where=left_out_at(seen[early[0]]),
            evidence=by_state({rank: _how(one, begun(one)) for rank, one in seen.items()}),
        )

    def _decided(
        self, seen: Mapping[int, Recording], early: tuple[int, ...], steps: Mapping[int, int]
    ) -> Finding:
        others = [rank for rank in seen if rank not in early]
        return self.fail(
            f"{ranks_phrase(early)} left the training loop after {plural(steps[early[0]], 'step')}, while "
            f"{ranks_phrase(others)} went on",
            why="Every rank had data for more steps, so what ended the loop was decided from values of that rank "
            "alone. The others wait for it in their next backward.",
            fix="stop = torch.tensor([float(stop)])     # what each rank would decide\n"
            "dist.all_reduce(stop, op=dist.ReduceOp.MAX)\nif stop.item():\n    break",
            ranks=early,
            where=left_at(seen[early[0]]),
            evidence=tuple(Evidence(_how(seen[rank], steps[rank]), (rank,)) for rank in seen),
        )


def _how(recording: Recording, steps: int) -> str:
    last = last_pass(recording)
    passes = f" in {plural(last.number + 1, 'pass')}, {last.drawn} batches of the last" if last else ""
    return f"{plural(steps, 'training step')}{passes}"
