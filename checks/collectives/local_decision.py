from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ddpdoctor.blame.causes import Cause, LeftBackwardOut, LeftLoop, LeftStepsOut
from ddpdoctor.blame.wording import others_wait, wait_phrase, who
from ddpdoctor.check import Confidence, Finding, Judgement, Kind, NotMeasured, Passed, Where, reports
from ddpdoctor.recorder.events.training import Collective
from ddpdoctor.text import by_state, plural, ranks_phrase
from ddpdoctor.trace import Recording, Trace, loop_exits
from ddpdoctor.trace.gloo import aborted_calls
from ddpdoctor.trace.local_exits import LocalExit, local_exit, skip_by_loss
from ddpdoctor.trace.recorded_job import HangCheck
from ddpdoctor.unreached.decisions import left_by_own_values

_HAD_BATCHES = (
    "Every rank had data for more steps, so what ended the loop depended on values that differ between ranks."
)
_BATCHES_UNKNOWN = (
    "The batches come from no DataLoader. Either that rank had fewer of them, or what "
    "ended its loop depended on values that differ between ranks."
)
_FIX_EITHER = (
    "number = torch.tensor(len(batches))     # of this rank; then train on number.item() of them\n"
    "dist.all_reduce(number, op=dist.ReduceOp.MIN)\n"
    "# or, where this rank decides when to stop: ddpdoctor explain DD308"
)


class LocalDecision(HangCheck):
    """Ranks left a loop at different steps, because each of them decided for itself.

    What it finds:
        A run that broke or hangs because some ranks continued a loop that others had left: they stopped early on
        their own loss, count or time although each had as many batches, or skipped the backward of one step. And, as
        a warning, a training loop that ends by each rank's local clock, or by a number that was seen to differ
        between ranks (a loss, a count of tokens, what dist.reduce left on the ranks that are not its dst), where the
        run did not reach that end; and a backward that a rank leaves out where its own loss is not finite, or
        past a limit.

    Why it matters:
        Each backward of a DDP model needs every rank. The ranks that continue wait for those that have left, until
        the timeout; or their all-reduce is matched with a barrier or an evaluation of the others, and fails. It can
        happen after hours, when the values of two ranks first fall on different sides of a threshold.

    Example:
        for epoch in range(100):
            train(model)
            if validation_loss > best:      # of this rank's own shard
                break

    Fix:
        Decide together: all ranks stop, or leave a step out, where one has to:
            stop = torch.tensor([float(validation_loss > best)])     # or ~torch.isfinite(loss); this rank's decision
            dist.all_reduce(stop, op=dist.ReduceOp.MAX)
            if stop.item():        # equal on every rank
                break              # or continue
    """

    code = "DD308"
    title = "ranks leave their loops together"
    explained_by = ("DD005", "DD106", "DD204", "DD214")
    unreached = (left_by_own_values, "ranks would {what} each by {by}")

    def examine_ended(self, trace: Trace) -> Judgement:
        recordings = trace.training_of_several()
        if trace.broken is None:
            together = f"{ranks_phrase(recordings)} left every loop together"
            return (self._foreseen(recordings) if self._joined(recordings) else []) or Passed(together)
        first = trace.first_to_break()
        failed_by_itself = first is not None and not first.is_victim
        if trace.out_of_time or (failed_by_itself and not trace.timed_out):
            raise NotMeasured(trace.broken)
        if any(step.joined for recording in recordings.values() for step in recording.steps):
            raise NotMeasured("ranks differ by design inside a Join")
        calls = _collectives_under_way(trace)
        # A rank that the launcher ended was most likely in a backward.
        stopped = [
            rank
            for rank, recording in recordings.items()
            if not (recording.exit or recording.raised or rank in calls)
            and loop_exits.is_in_a_step(recording)
        ]
        skipped, early = loop_exits.skippers(recordings, stopped, calls), loop_exits.leavers(recordings)
        if skipped and len(skipped) < len(recordings):
            counts = {rank: _counts(recording) for rank, recording in recordings.items()}
            return [self._told(loop_exits.backward_left_out(recordings, skipped), recordings, counts)]
        if not early or len(early) == len(recordings):
            raise NotMeasured(trace.broken)
        cause = loop_exits.loop_left(recordings, early)
        count = loop_exits.begun if isinstance(cause, LeftStepsOut) else loop_exits.steps_of
        steps = {rank: _steps(recording, count(recording)) for rank, recording in recordings.items()}
        return [self._told(cause, recordings, steps)]

    def _joined(self, recordings: Mapping[int, Recording]) -> bool:
        """Whether all ranks take part in each step, so that one that stops is missed."""
        steps = [step for recording in recordings.values() for step in recording.steps]
        reduced = any(backward.reduced for step in steps for backward in step.backwards)
        return reduced and not any(step.joined for step in steps)

    def _foreseen(self, recordings: Mapping[int, Recording]) -> list[Finding]:
        """Steps that were left out with no rank left waiting; a loop that will end by what differs between ranks."""
        if cause := loop_exits.left_out_unseen(recordings):
            return [self._told(cause, recordings, {})]
        if way_out := local_exit(recordings):
            by_clock = self._by_clock(tuple(recordings), way_out.at)
            return [self._by_number(way_out) if way_out.values else by_clock]
        skip = skip_by_loss(recordings)
        return [self._by_loss(skip)] if skip else []

    def _by_number(self, way_out: LocalExit) -> Finding:
        return self.warn(
            f"the end of the training loop depends on {way_out.name}, which differs between ranks",
            why="The ranks will not leave the loop in the same step: those that go on wait for the "
            "others in their next all-reduce. The recorded run ended before that.",
            **_fields(way_out),
        )

    def _by_loss(self, skip: LocalExit) -> Finding:
        what = "by their own loss" if skip.name else "where their own loss is not finite"
        meets = "meets this condition" if skip.name else "makes the loss infinite or NaN"
        return self.warn(
            f"{ranks_phrase(skip.values)} skip the backward {what}",
            why=f"A rank whose batch {meets} goes on to the next batch, while the others wait for it in the "
            "backward. In the recorded run, no batch did.",
            **_fields(replace(skip, name="loss")),
        )

    def _by_clock(self, ranks: tuple[int, ...], where: Where) -> Finding:
        return self.warn(
            f"{ranks_phrase(ranks)} end the training loop by their local clocks",
            why="Clocks of two ranks never agree exactly, so one rank leaves the loop a step before another, which "
            "then waits for it in its next all-reduce. The recorded run ended before that.",
            ranks=ranks,
            where=where,
            confidence=Confidence.LIKELY,
            foreseen=True,
        )

    def _told(self, cause: Cause, ranks: Iterable[int], states: Mapping[int, str]) -> Finding:
        waiting = tuple(rank for rank in ranks if rank not in cause.culprits)
        return self.report(replace(cause, waiting=waiting, states=(*cause.states, *by_state(states))))

    @reports(LeftLoop)
    def _left_loop(self, cause: LeftLoop) -> Finding:
        waits = f" and {wait_phrase(cause.waiting, cause.waits_in).removeprefix(who(cause.waiting)).strip()}"
        return self.fail(
            f"{who(cause.culprits)} left the training loop after {plural(cause.steps, 'step')}, while "
            f"{who(cause.waiting)} went on{waits if cause.waits_in else ''}",
            why=(_HAD_BATCHES if cause.had_batches else _BATCHES_UNKNOWN)
            + " The others wait for it in their next collective.",
            **({} if cause.had_batches else {"fix": _FIX_EITHER}),
        )

    @reports(LeftStepsOut)
    def _left_steps_out(self, cause: LeftStepsOut) -> Finding:
        return self._skipped(cause, f"skipped {plural(cause.fewer, 'training step')}", "made")

    @reports(LeftBackwardOut)
    def _left_backward_out(self, cause: LeftBackwardOut) -> Finding:
        step = "?" if cause.step is None else cause.step
        return self._skipped(cause, f"skipped the backward of training step {step}", "ran")

    def _skipped(self, cause: Cause, skipped: str, others_did: str) -> Finding:
        others = f"and {others_wait(cause)}" if cause.waits_in else f"which {who(cause.waiting)} {others_did}"
        return self.fail(f"{who(cause.culprits)} {skipped}, {others}")


def _fields(way_out: LocalExit) -> dict[str, Any]:
    """Of a finding about a condition that a number of each rank's own decides."""
    return {
        "ranks": tuple(way_out.values),
        "where": way_out.at,
        "evidence": by_state(way_out.values, lambda value: f"{way_out.name} = {value:.6g}"),
        "confidence": Confidence.LIKELY,
        "foreseen": True,
        "about": Kind.LINE.of(f"{way_out.at.file}:{way_out.at.line}"),
    }


def _collectives_under_way(trace: Trace) -> dict[int, Where | None]:
    """The lines of the collectives in which ranks were ended."""
    begun = {rank: loop_exits.open_call(recording) for rank, recording in trace.recorded.items()}
    calls = {**begun, **trace.once(aborted_calls)}
    return {rank: call.at for rank, call in calls.items() if isinstance(call, Collective)}


def _counts(recording: Recording) -> str:
    forwards, backwards = len(loop_exits.training_forwards(recording)), len(recording.backwards)
    return f"{plural(forwards, 'forward')}, {plural(backwards, 'backward')}"


def _steps(recording: Recording, steps: int) -> str:
    made = loop_exits.training_passes(recording)
    passes = f" in {plural(len(made), 'pass')}, {plural(made[-1].drawn, 'batch')} of the last" if made else ""
    return f"{plural(steps, 'training step')}{passes}"
