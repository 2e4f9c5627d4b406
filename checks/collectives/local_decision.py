from collections.abc import Mapping

from ddpdoctor.check import Check
from ddpdoctor.judge import NotMeasured
from ddpdoctor.model import Evidence, Family, Finding, Judgement, Passed, Where
from ddpdoctor.text import plural, ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.data import Pass
from ddpdoctor.trace.loops import shares_loop
from ddpdoctor.trace.recording import Recording


class LocalDecision(Check):
    """Ranks left a loop at different steps, by a decision that each took for itself.

    What it finds:
        A run that broke because some ranks went on with a loop that others had left: they stopped early on a
        loss, a count or a time of their own, although each had as many batches.

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
    explained_by = ("DD005", "DD106", "DD214")

    def examine_run(self, trace: Trace) -> Judgement:
        seen = trace.training_of_several()
        if trace.broken is None:
            return Passed(f"{ranks_phrase(seen)} left every loop together")
        first = trace.first_to_break()
        failed_by_itself = first is not None and not (first.failure and first.failure.of_a_victim)
        if trace.out_of_time or (failed_by_itself and not trace.timed_out):
            raise NotMeasured(trace.broken)
        steps = {rank: one.step_count or len(one.steps) for rank, one in seen.items()}
        early = tuple(rank for rank in seen if _left_a_loop(seen, rank))
        if not early or len(early) == len(steps):
            raise NotMeasured(trace.broken)
        return [self._decided(seen, early, steps)]

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
            where=_where(seen[early[0]]),
            evidence=tuple(Evidence(_how(seen[rank], steps[rank]), (rank,)) for rank in seen),
        )


def _left_a_loop(seen: Mapping[int, Recording], rank: int) -> bool:
    """Whether a rank has done with a loop over data, or with training, that others still went on with."""
    others = [one for at, one in seen.items() if at != rank]
    own, last = seen[rank], _last(seen[rank])
    if last is not None and last.ended == "left" and any(_goes_on(last, _last(one)) for one in others):
        return True
    # The rank that waits stands in a step that it has begun, so it may be ahead by the one it did not end.
    return _is_done(own) and any(_begun(one) > _begun(own) for one in others)


def _goes_on(left: Pass, other: Pass | None) -> bool:
    """Whether another rank took more batches of the pass that one left."""
    return other is not None and other.number == left.number and other.drawn > left.drawn


def _is_done(recording: Recording) -> bool:
    """Whether it will not train again: it came to its end, or waits for the others behind the loop."""
    update = next((step.optimizer_steps[-1].at for step in recording.steps if step.optimizer_steps), None)
    if recording.raised is not None:
        return _is_behind(update, recording.raised.at)
    if any(event.action == "destroy" for event in recording.groups):
        return True
    if open_call := next((one for one in recording.collectives if not one.ended), None):
        return _is_behind(update, open_call.at)
    ended = recording.exit
    return ended is not None and (ended.how == "returned" or _is_behind(update, ended.at))


def _is_behind(update: Where | None, other: Where | None) -> bool:
    """Whether a line is outside of the training loop."""
    if update is None or other is None:
        return False
    in_main_module = other.function == "<module>" != update.function
    return in_main_module or shares_loop(update, other) is False


def _begun(recording: Recording) -> int:
    """Training steps, with the one that was begun."""
    forwards = [one for one in recording.trailing.forwards if one.grad] if recording.trailing else []
    count = recording.step_count or len(recording.steps)
    return count + bool(forwards)


def _last(recording: Recording) -> Pass | None:
    trained = [one for one in recording.passes if one.training]
    return trained[-1] if trained else None


def _where(recording: Recording) -> Where | None:
    """The loop that was left; without a DataLoader, the last update."""
    last = _last(recording)
    if last is not None and last.at is not None:
        return last.at
    return recording.steps[-1].optimizer_steps[-1].at if recording.steps else None


def _how(recording: Recording, steps: int) -> str:
    last = _last(recording)
    passes = f" in {plural(last.number + 1, 'pass')}, {last.drawn} batches of the last" if last else ""
    return f"{plural(steps, 'training step')}{passes}"
