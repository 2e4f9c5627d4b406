from collections.abc import Iterable, Mapping
from dataclasses import replace

from ddpdoctor.blame.causes import Cause, LeftBackwardOut, LeftLoop, LeftStepsOut
from ddpdoctor.blame.wording import cause_fields, others_wait, wait_phrase, who
from ddpdoctor.check import reports
from ddpdoctor.judge import NotMeasured
from ddpdoctor.model import Family, Finding, Judgement, Passed
from ddpdoctor.outliers import by_state
from ddpdoctor.text import plural, ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.loop_exits import (
    backward_left_out,
    begun,
    is_in_a_step,
    last_pass,
    leavers,
    loop_left,
    skippers,
    steps_of,
    training_forwards,
)
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.standstill_check import StandstillCheck

_FIX = (
    "skip = skip.float()    # what decides, as a tensor\ndist.all_reduce(skip)\n"
    "if skip.item() > 0:        # equal on every rank\n    continue"
)
_WHY_STEPS = (
    "Every rank drew as many batches, and each backward of DDP needs every rank. Whether to train on a batch "
    "was decided by what one rank alone saw, so from there on that rank is ahead of the others."
)
_WHY_BACKWARD = (
    "Each backward of DDP needs every rank. Whether to run it was decided from values of one rank alone, so from there "
    "on that rank is one collective ahead of the others."
)


class LocalDecision(StandstillCheck):
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

    def examine_ended(self, trace: Trace) -> Judgement:
        seen = trace.training_of_several()
        if trace.broken is None:
            return Passed(f"{ranks_phrase(seen)} left every loop together")
        first = trace.first_to_break()
        failed_by_itself = first is not None and not first.is_victim
        if trace.out_of_time or (failed_by_itself and not trace.timed_out):
            raise NotMeasured(trace.broken)
        # Who was ended by the launcher stood in a backward, mostly.
        stopped = [rank for rank, one in seen.items() if not (one.exit or one.raised) and is_in_a_step(one)]
        skipped, early = skippers(seen, stopped), leavers(seen)
        if skipped and len(skipped) < len(seen):
            calls = {rank: (len(training_forwards(one)), len(one.backwards)) for rank, one in seen.items()}
            texts = {
                rank: f"{plural(f, 'forward')}, {plural(b, 'backward')}" for rank, (f, b) in calls.items()
            }
            return [self._in_broken_run(backward_left_out(seen, skipped), seen, texts)]
        if not early or len(early) == len(seen):
            raise NotMeasured(trace.broken)
        cause = loop_left(seen, early)
        steps = {
            rank: begun(one) if isinstance(cause, LeftStepsOut) else steps_of(one)
            for rank, one in seen.items()
        }
        return [
            self._in_broken_run(cause, seen, {rank: _how(one, steps[rank]) for rank, one in seen.items()})
        ]

    def _in_broken_run(self, cause: Cause, ranks: Iterable[int], texts: Mapping[int, str]) -> Finding:
        waiting = tuple(rank for rank in ranks if rank not in cause.culprits)
        return self.report(replace(cause, waiting=waiting, states=by_state(texts)))

    @reports(LeftLoop)
    def _left_loop(self, cause: LeftLoop) -> Finding:
        waits = f" and {wait_phrase(cause.waiting, cause.waits_in).removeprefix(who(cause.waiting)).strip()}"
        return self.fail(
            f"{who(cause.culprits)} left the training loop after {plural(cause.steps, 'step')}, while "
            f"{who(cause.waiting)} went on{waits if cause.waits_in else ''}",
            why="Every rank had data for more steps, so what ended the loop was decided from values of that rank "
            "alone. The others wait for it in their next collective.",
            fix="stop = torch.tensor([float(stop)])     # what each rank would decide\n"
            "dist.all_reduce(stop, op=dist.ReduceOp.MAX)\nif stop.item():\n    break",
            **cause_fields(cause),
        )

    @reports(LeftStepsOut)
    def _left_steps_out(self, cause: LeftStepsOut) -> Finding:
        steps = f"{plural(cause.fewer, 'training step')}{_others(cause, 'made')}"
        return self.fail(
            f"{who(cause.culprits)} left out {steps}", why=_WHY_STEPS, fix=_FIX, **cause_fields(cause)
        )

    @reports(LeftBackwardOut)
    def _left_backward_out(self, cause: LeftBackwardOut) -> Finding:
        step = f"training step {'?' if cause.step is None else cause.step}{_others(cause, 'ran')}"
        headline = f"{who(cause.culprits)} left out the backward of {step}"
        return self.fail(headline, why=_WHY_BACKWARD, fix=_FIX, **cause_fields(cause))


def _others(cause: Cause, did: str) -> str:
    return f", and {others_wait(cause)}" if cause.waits_in else f", which {who(cause.waiting)} {did}"


def _how(recording: Recording, steps: int) -> str:
    last = last_pass(recording)
    passes = f" in {plural(last.number + 1, 'pass')}, {last.drawn} batches of the last" if last else ""
    return f"{plural(steps, 'training step')}{passes}"
