"""Why a recorded job stands still, by what its ranks' records tell besides their stacks; the checks that report it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ddpdoctor import registry
from ddpdoctor.blame import causes
from ddpdoctor.blame.frames import of_script, where_in, where_of
from ddpdoctor.blame.hang_analysis import HangAnalysis, cause_of
from ddpdoctor.blame.hang_snapshot import Doing, HangSnapshot
from ddpdoctor.blame.place import PlaceKind
from ddpdoctor.check import Check, NotMeasured
from ddpdoctor.hang.flight.dumped_job import DumpedJob
from ddpdoctor.model import Confidence, Finding, Judgement, Where
from ddpdoctor.program.polls import poll_of
from ddpdoctor.recorder.events.process import GroupEvent
from ddpdoctor.text import by_state, shorten
from ddpdoctor.trace import Trace, loop_exits
from ddpdoctor.trace.data import TrainingStep
from ddpdoctor.trace.instances import by_value
from ddpdoctor.trace.joint_training import first_difference, groups_made, made_alone, out_of_order
from ddpdoctor.trace.recorded_states import awaited_path, ends_its_work, rank_states
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.sequence import Row, SequencePoint, called_alone, differ, divergence, mismatch

_AS_POINT = {PlaceKind.BACKWARD: "backward", PlaceKind.FORWARD: "forward", PlaceKind.DESTROY: "left"}


class RecordedJob(HangAnalysis):
    """A job of which stacks, records and flight recorders are known, or some of them."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(rank_states(trace), trace.snapshot or HangSnapshot(), out_of_time=trace.out_of_time)
        self.imagined = trace.imagined is not None
        self.recordings = trace.recorded

    def by_dumps(self) -> causes.Cause | None:
        """What flight recorders tell, of which one says nothing without the others."""
        flight = {} if self.imagined else self.snapshot.flight  # its numbers are those of processes
        return cause_of(DumpedJob(flight, self.snapshot.world_size)) if len(flight) > 1 else None

    def groups_differ(self) -> causes.Cause | None:
        """Whether somebody waits in new_group for ranks that made other groups, or none."""
        called = [rank for rank in self.waiting if self.stands_in(rank, PlaceKind.GROUP)]
        others = [rank for rank in self.waiting if rank not in called]
        if not called or (others and all(map(self._evaluates, others))):
            return None
        orders = {rank: groups_made(recording) for rank, recording in self.recordings.items()}
        if len(orders) < len(self.ranks):
            return self._made_alone(called, others) if others else None
        if extra := made_alone(orders):
            return self._made_alone(extra, [rank for rank in self.ranks if rank not in extra])
        row = first_difference(orders)
        return None if row is None else self._out_of_order(row)

    def _evaluates(self, rank: int) -> bool:
        """Whether it waits in a forward of the wrapper that does not learn: it never comes to what the others do."""
        known = self.recordings.get(rank)
        waits = known is not None and self.stands_in(rank, PlaceKind.FORWARD)
        return known is not None and waits and not _forward_at(self.ranks[rank].where, known)[1]

    def _out_of_order(self, row: Mapping[int, GroupEvent | None]) -> causes.Cause | None:
        made = {rank: event for rank, event in row.items() if event is not None}
        others = [rank for rank in row if rank not in made]
        if not others:
            return self.with_states(out_of_order(made))
        # Who is busy before it comes to new_group is judged for that.
        idle = all(self.ranks[rank].waits or self.ranks[rank].left for rank in others)
        return self._made_alone(list(made), others) if idle else None

    def _made_alone(self, called: Sequence[int], others: Sequence[int]) -> causes.Cause:
        first = self.recordings.get(called[0])
        made = groups_made(first) if first else []
        of_each = [{group.ranks for group in groups_made(each)} for each in self.recordings.values()]
        alone = (group for group in made if any(group.ranks not in known for known in of_each))
        event = next(alone, made[-1] if made else None)
        return self.tell(
            causes.GroupMadeAlone,
            called,
            waiting=tuple(others),
            made=event is not None,
            members=event.ranks if event else None,
            where=event.at if event else self.ranks[called[0]].where,
            confidence=Confidence.CERTAIN if made else Confidence.LIKELY,
        )

    def _at_work(self, ranks: Sequence[int]) -> causes.Cause:
        return self._polls(ranks) or super()._at_work(ranks)

    def _polls(self, ranks: Sequence[int]) -> causes.Cause | None:
        """Whether the first of these ranks does nothing but look for something; None also where it reads or writes."""
        process = self.ranks[ranks[0]].process
        if process is None or process.doing is Doing.DISK:
            return None
        places = [where_of(process.stack[index]) for index in of_script(process.stack)]
        script = next((it.script for it in self.recordings.values() if it.script), "")
        poll = poll_of(places[::-1], script)
        if poll is None:
            return None
        about = awaited_path(ranks[0], poll, self.recordings)
        return self.tell(causes.Polls, ranks, look=poll.look, until=poll.until, where=poll.at, **about)

    def gone(self, ranks: Sequence[int]) -> causes.Cause:
        if early := [rank for rank in loop_exits.out_of_batches(self.recordings) if rank in ranks]:
            return self._out_of_batches(early)
        places = {rank: state.where for rank, state in self.ranks.items()}
        if early := [rank for rank in loop_exits.leavers(self.recordings, places) if rank in ranks]:
            return self._left_loop(early)
        return super().gone(ranks)

    def failed(self) -> causes.Cause | None:
        """Whether some ranks, which all others wait for, have raised; None also where that is not sure."""
        handled = {
            rank: state.process.handles
            for rank, state in self.ranks.items()
            if state.process and state.process.handles
        }
        if not handled or len(handled) == len(self.ranks) or len(self.waiting) < len(self.ranks):
            return None
        if not all(ends_its_work(self.ranks[rank], self.recordings.get(rank)) for rank in handled):
            return None
        first, *_ = ranks = sorted(handled)
        place, frames = self.ranks[first].place, handled[first].frames
        texts = by_state(handled, lambda error: shorten(f"{error.type}: {error.message}", 200))
        where = where_in(frames) or self.ranks[first].where
        return self.tell(
            causes.FailedAndWaits, ranks, states=texts, handled=handled[first], own_wait=place, where=where
        )

    def diverged(self, ranks: Sequence[int]) -> causes.Cause | None:
        known = {rank: self.recordings[rank] for rank in ranks if rank in self.recordings}
        if len(known) < len(ranks):
            return None
        in_backward = [rank for rank in ranks if self.stands_in(rank, PlaceKind.BACKWARD)]
        places = {rank: self.ranks[rank].where for rank in ranks}
        rules = (
            (self._gradients_missing, _without_average(known, in_backward)),
            (self._out_of_batches, loop_exits.out_of_batches(known)),
            (self._left_backward_out, loop_exits.skippers(known, in_backward, places)),
            (self._left_loop, loop_exits.leavers(known, places)),
        )
        for tell, culprits in rules:
            if culprits and len(culprits) < len(known):
                return tell(culprits)
        return self._by_sequence(known)

    def _gradients_missing(self, ranks: Sequence[int]) -> causes.Cause:
        others = tuple(rank for rank in self.ranks if self.stands_in(rank, PlaceKind.BACKWARD))
        step = _last_step(self.recordings[ranks[0]])
        where = step.backwards[-1].at if step else None
        return self.tell(causes.GradientsMissing, ranks, waiting=others, where=where)

    def _out_of_batches(self, ranks: Sequence[int]) -> causes.Cause:
        first = self.recordings[ranks[0]]
        last = loop_exits.last_pass(first) or first.passes[0]  # it had no batch to train with
        loader = first.loader(last.loader)
        where = (loader.at if loader else None) or last.at
        return self.tell(causes.OutOfBatches, ranks, drawn=last.drawn, where=where)

    def _left_backward_out(self, ranks: Sequence[int]) -> causes.Cause:
        return self.with_states(loop_exits.backward_left_out(self.recordings, ranks))

    def _left_loop(self, ranks: Sequence[int]) -> causes.Cause:
        return self.with_states(loop_exits.loop_left(self.recordings, ranks, self.ranks[ranks[0]].where))

    def _by_sequence(self, known: Mapping[int, Recording]) -> causes.Cause | None:
        """By the first position at which they did different things; by where they are, where records are thinned."""
        now = {rank: point for rank in known if (point := self._point(rank))}
        row = divergence(known, now) or now
        # Two forwards would have met if an earlier evaluation had not taken the place of one.
        apart = differ(row) or len({point.learns for point in row.values()}) > 1
        if len(row) < len(known) or not apart:
            return None
        cause = called_alone(row, self.recordings) or mismatch(row)
        culprits = cause.culprits if isinstance(cause, causes.CalledAlone) else _fewest(row)
        where = row[culprits[0]].at if culprits else cause.where
        waiting = tuple(rank for rank in known if rank not in culprits)
        return self.with_states(replace(cause, culprits=culprits, waiting=waiting, where=where))

    def _point(self, rank: int) -> SequencePoint | None:
        """Where a rank waits, as a point of its sequence; None where it does not."""
        state, recording = self.ranks[rank], self.recordings[rank]
        if not state.waits or state.place is None:
            return None
        kind, what, where = state.place.kind, state.place.what, state.where
        if kind is PlaceKind.FORWARD:
            wrapper, learns = _forward_at(where, recording)
            sends = any(one.buffers for one in recording.wrappers if str(one.index) == wrapper)
            return SequencePoint("forward", wrapper, where, recording.last, learns=learns, has_buffers=sends)
        name = "" if kind is PlaceKind.BACKWARD else what
        return SequencePoint(_AS_POINT.get(kind, "collective"), name, where, recording.last)


def _without_average(known: Mapping[int, Recording], in_backward: Sequence[int]) -> list[int]:
    """The ranks whose last backward ended without the all-reduce in which the others still are."""
    if not in_backward:
        return []
    most = max(_averaged(known[rank]) for rank in in_backward)
    outside = (rank for rank in known if rank not in in_backward)
    return [rank for rank in outside if _left_unreduced(known[rank]) and _averaged(known[rank]) == most]


def _left_unreduced(recording: Recording) -> bool:
    step = _last_step(recording)
    if not recording.wrappers or step is None or not step.backwards or step.backwards[-1].reduced:
        return False
    return any(forward.grad and forward.synced and not forward.around for forward in step.forwards)


def _last_step(recording: Recording) -> TrainingStep | None:
    if recording.trailing and recording.trailing.backwards:
        return recording.trailing
    return recording.steps[-1] if recording.steps else None


def _averaged(recording: Recording) -> int:
    return sum(bool(backward.reduced) for backward in recording.backwards)


def _fewest(row: Row) -> tuple[int, ...]:
    """The ranks that did something else than most; all where most did not agree."""
    by_call = by_value({rank: (point.key, point.size, point.root) for rank, point in row.items()})
    most = max(by_call.values(), key=len)
    if 2 * len(most) <= len(row):
        return tuple(sorted(row))
    return tuple(rank for rank in sorted(row) if rank not in most)


def _forward_at(where: Where | None, recording: Recording) -> tuple[str, bool]:
    """Which wrapper's forward a line calls, and whether it learns, as that line did before."""
    known = (*recording.forwards, *recording.evaluation_forwards)
    here = [forward for forward in known if where and forward.at and forward.at.place == where.place]
    if here:
        return str(here[-1].wrapper), recording.learns(here[-1])
    return (str(known[-1].wrapper), False) if known else ("0", True)


def cause_of_run(trace: Trace) -> causes.Cause | None:
    """Why a run stands still; None where it does not, or where no rank waits in vain."""
    return trace.once(_cause)


def _cause(trace: Trace) -> causes.Cause | None:
    job = hang_analysis(trace)
    return cause_of(job) if job else None


def hang_analysis(trace: Trace) -> HangAnalysis | None:
    """A run that stands still, by where its ranks are; None where it does not."""
    snapshot = trace.snapshot
    if snapshot is None:
        return None
    recorded = any(rank.recording for rank in trace.ranks)
    only_dumps = not snapshot.processes and not recorded
    return DumpedJob(snapshot.flight, snapshot.world_size) if only_dumps else RecordedJob(trace)


class HangCheck(Check):
    """A check with :attr:`causes`: where a run hangs, it reports these causes only."""

    def examine_run(self, trace: Trace) -> Judgement:
        """The finding where a run hangs for a cause of this check; NotMeasured where it hangs for a cause of another
        check. :meth:`examine_ended` judges a run that ended."""
        if findings := self.cause_of_hang(trace):
            return findings
        if cause := cause_of_run(trace):
            raise NotMeasured(f"the job hangs ({registry.by_cause(type(cause)).code})")
        return self.examine_ended(trace)

    def cause_of_hang(self, trace: Trace) -> list[Finding]:
        """The finding where a run hangs for a cause of this check."""
        cause = cause_of_run(trace)
        return [self.report(cause)] if type(cause) in self.causes else []

    def examine_ended(self, trace: Trace) -> Judgement:
        """The judgement on a run that does not hang."""
        raise NotImplementedError
