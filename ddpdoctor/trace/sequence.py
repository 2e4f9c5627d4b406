"""What a rank did together with the others, in order: the first position where ranks diverge."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from ddpdoctor.blame.causes import CalledAlone, DivergentCall, Mismatch
from ddpdoctor.blame.place import OF_TWO
from ddpdoctor.blame.wording import at
from ddpdoctor.check import NotMeasured
from ddpdoctor.model import Where
from ddpdoctor.recorder.events.training import Backward, Collective
from ddpdoctor.recorder.operations import OPERATIONS
from ddpdoctor.text import by_state
from ddpdoctor.trace import Trace
from ddpdoctor.trace.gloo import aborted_calls
from ddpdoctor.trace.lines import decision, guarded_call, is_for_some_ranks
from ddpdoctor.trace.loop_exits import loops_of
from ddpdoctor.trace.recording import Recording

OF_ONE_SIZE = tuple(operation.name for operation in OPERATIONS if operation.one_size)
"""Operations whose tensors have one size on all ranks."""


@dataclass(frozen=True)
class SequencePoint:
    """Something that a rank does only together with the others; or its leaving."""

    kind: str
    """``collective`` (the script's own), ``forward`` (broadcasts buffers), ``backward`` (averages) or ``left``."""
    what: str
    """The operation; the wrapper; how it left: ``destroy_process_group`` or ``end``."""
    at: Where | None
    time: float
    size: tuple[int, str] | None = None
    """How many elements of which type, where that is the same on every rank of a right program."""
    shape: tuple[int, ...] | None = None
    learns: bool = True
    """Whether autograd was on, for a forward."""
    has_buffers: bool = True
    """Of a forward; one without buffers waits, too, where DDP orders its buckets anew."""
    root: int | None = None
    """The rank that gives to all or gets from all, as the call named it."""
    gradient_of: str | None = None
    """The parameter whose gradient it is given."""

    @property
    def key(self) -> tuple[str, str]:
        """What has to be equal on all ranks."""
        return self.kind, self.what

    @property
    def name(self) -> str:
        """For a sentence that says what a rank called."""
        if self.kind == "forward":
            return f"the wrapped model{', whose forward broadcasts buffers' if self.has_buffers else ''}"
        return "backward" if self.kind == "backward" else self.what


Row: TypeAlias = "dict[int, SequencePoint]"
"""What each rank did at one position; a rank whose record ends before is not there."""


def divergence_of(trace: Trace) -> Row | None:
    """Where the ranks of a run diverged; NotMeasured of one rank alone, or of a rank that failed by itself, whose peers
    could only wait for it."""
    recordings = trace.recordings_of_several()
    first = trace.first_to_break()
    # gloo has a process abort that was sent more than it expected.
    aborts = first is not None and first.killed_by == signal.SIGABRT
    by_itself = first is not None and not aborts and not (first.failure and first.failure.of_a_victim)
    if trace.out_of_time or by_itself:
        raise NotMeasured(trace.broken or "a rank failed")
    aborted = {rank: _again(call, recordings[rank]) for rank, call in trace.once(aborted_calls).items()}
    if any(recording.step_count > len(recording.steps) for recording in recordings.values()):
        joined = any(step.joined for recording in recordings.values() for step in recording.all_steps)
        return None if joined else _alone_in_a_step(recordings, aborted)
    return divergence(recordings, aborted)


def divergence(
    recordings: Mapping[int, Recording], now: Mapping[int, SequencePoint] | None = None
) -> Row | None:
    """Where ranks of the default group diverged; None where they did not, or the records do not show all. ``now`` is in
    what ranks were seen to stand, of a job that stands still, or in what gloo aborted them."""
    sequences = {rank: _sequence(recording, (now or {}).get(rank)) for rank, recording in recordings.items()}
    known = {rank: sequence for rank, sequence in sequences.items() if sequence is not None}
    if len(known) < len(sequences) or len(known) < 2:
        return None
    for position in range(max(map(len, known.values()))):
        row = {rank: sequence[position] for rank, sequence in known.items() if position < len(sequence)}
        if differ(row):
            return row
    return None


def other_gradients(recordings: Mapping[int, Recording]) -> Row | None:
    """The first position at which ranks reduce the gradients of different parameters; None where they never do, or
    where the records do not show all. A parameter that not every rank knows by its name may be another's under a
    name of its own."""
    if any(_sequence(recording) is None for recording in recordings.values()):
        return None
    known = set.intersection(
        *({key for it in recording.optimizers for key in it.keys} for recording in recordings.values())
    )
    by_number = [
        {
            call.number: call
            for call in recording.collectives
            if call.group is None and call.gradient_of in known and call.operation == "all_reduce"
        }
        for recording in recordings.values()
    ]
    for number in sorted(number for number in by_number[0] if number is not None):
        calls = [calls[number] for calls in by_number if number in calls]
        if len(calls) == len(recordings) and len({call.gradient_of for call in calls}) > 1:
            return dict(zip(recordings, map(_of_collective, calls), strict=True))
    return None


def differ(row: Row) -> bool:
    """Whether ranks did different things there, with tensors of different sizes, or named different roots."""
    points = row.values()
    sizes = {point.size for point in points if point.size is not None}
    roots = {point.root for point in points if point.root is not None}
    return max(len({point.key for point in points}), len(sizes), len(roots)) > 1


def mismatch(row: Mapping[int, SequencePoint]) -> Mismatch:
    """Ranks that called different collectives at one position."""
    calls = {rank: _call(point) for rank, point in row.items()}
    rank, *others = calls
    other = next((other for other in others if calls[other] != calls[rank]), others[0])
    return Mismatch(
        first=DivergentCall((rank,), calls[rank]),
        second=DivergentCall((other,), calls[other]),
        culprits=tuple(calls),
        of_roots=len({_call(replace(point, root=None)) for point in row.values()}) == 1,
        where=row[rank].at,
        states=by_state({rank: f"{calls[rank]}{at(it.at)}" for rank, it in row.items()}, places=_places(row)),
    )


def called_alone(row: Mapping[int, SequencePoint], recordings: Mapping[int, Recording]) -> CalledAlone | None:
    """Ranks that called a collective while the others went on; None where they diverged otherwise.

    Of an evaluation through the wrapper and a collective of the script it is the evaluation: it needs no other rank.
    Of two collectives it is the one under a condition on the rank, where the other is under none.
    """
    # What the script called on its own: not a step of training, in which all ranks are to meet.
    extra = {r: p for r, p in row.items() if p.kind == "collective" or (p.kind == "forward" and not p.learns)}
    if len(extra) == len(row):
        forwards = {rank: point for rank, point in row.items() if point.kind == "forward"}
        extra = forwards or _for_some_ranks(row, recordings)
    others = {rank: point for rank, point in row.items() if rank not in extra}
    if not extra or not others or any(point.what == "end" for point in others.values()):
        return None
    first, went_on = next(iter(extra.values())), next(iter(others.values()))
    next_step = went_on.kind == "forward" and went_on.learns
    led_by = guarded_call(first.at, recordings)
    return CalledAlone(
        call=first.name,
        others=DivergentCall(tuple(others), "the next training step" if next_step else went_on.name),
        of_forward=first.kind == "forward",
        culprits=tuple(extra),
        waiting=tuple(others),
        where=first.at,
        led_by=led_by,
        states=by_state(
            {rank: f"{row[rank].name}{at(row[rank].at)}" for rank in sorted(row)}, places=_places(row)
        )
        + decision(led_by or first.at, recordings),
    )


def _for_some_ranks(
    row: Mapping[int, SequencePoint], recordings: Mapping[int, Recording]
) -> dict[int, SequencePoint]:
    """The points under a condition on the rank, where ranks run different operations."""
    several = len({point.key for point in row.values()}) > 1
    return {rank: point for rank, point in row.items() if several and is_for_some_ranks(point.at, recordings)}


def _places(row: Mapping[int, SequencePoint]) -> dict[int, Where | None]:
    return {rank: point.at for rank, point in row.items()}


def _call(point: SequencePoint) -> str:
    """``all_gather of float32 [6, 1]``, ``broadcast of float32 [4] with rank 0 as its root``."""
    root = "" if point.root is None else f" with rank {point.root} as its root"
    if point.shape is None or point.size is None:
        return point.name + root
    gradient = f", the gradient of {point.gradient_of}" if point.gradient_of else ""
    return f"{point.what} of {point.size[1]} {list(point.shape)}{gradient}{root}"


def _sequence(recording: Recording, now: SequencePoint | None = None) -> list[SequencePoint] | None:
    """All that a rank did together with the others; None where not all was written down, or some of it is hidden."""
    calls = [call for call in recording.collectives if call.group is None and call.operation not in OF_TWO]
    complete = sorted(call.number for call in calls if call.number is not None) == list(range(len(calls)))
    hidden = any(optimizer.sharded or optimizer.averages for optimizer in recording.optimizers)
    joined = any(step.joined for step in recording.all_steps)
    if not complete or hidden or joined or recording.step_count > len(recording.steps):
        return None
    points = [_of_collective(call) for call in calls]
    points += [*_broadcasts(recording), *_reductions(recording)]
    if now is None:
        points += _under_way(recording)
    elif now.kind != "left" and not any(call.operation == now.what and not call.ended for call in calls):
        points.append(now)
    points.sort(key=lambda point: point.time)
    return [*points, *_leaving(recording)]


def _of_collective(call: Collective) -> SequencePoint:
    sized = call.operation in OF_ONE_SIZE and call.shape is not None and call.dtype is not None
    size = (math.prod(call.shape or ()), str(call.dtype)) if sized else None
    return SequencePoint(
        "collective",
        call.operation,
        call.at,
        call.time,
        size,
        call.shape,
        root=call.peer,
        gradient_of=call.gradient_of,
    )


def _again(call: Collective | Backward, recording: Recording) -> SequencePoint:
    """Another call of a line, with which the record of a rank ends."""
    known = _of_collective(call) if isinstance(call, Collective) else _of_backward(call)
    return replace(known, time=recording.last)


def _of_backward(backward: Backward) -> SequencePoint:
    return SequencePoint("backward", "", backward.at, backward.time)


def _alone_in_a_step(recordings: Mapping[int, Recording], aborted: Row) -> Row | None:
    """Where ranks of a run ended of which late steps are not written down; None but where that tells who is alone.

    It does where some ended in a line of the training loop that no other rank has ever called, and others in backward:
    the first calls of each line are written down.
    """
    ends = {rank: aborted.get(rank) or _end_of(recording) for rank, recording in recordings.items()}
    row = {rank: point for rank, point in ends.items() if point is not None}
    calls = {rank: point.at for rank, point in row.items() if point.kind == "collective" and point.at}
    backward = next((point.at for point in row.values() if point.kind == "backward"), None)
    others = [recording for rank, recording in recordings.items() if rank not in calls]
    called = {call.at and call.at.place for other in others for call in other.collectives}
    if not calls or backward is None:
        return None
    loops = loops_of(next(iter(recordings.values())), backward)
    alone = all(at.place not in called and loops.is_repeated_with(backward, at) for at in calls.values())
    return row if alone else None


def _end_of(recording: Recording) -> SequencePoint | None:
    """The collective or the backward in which a rank ended, by the line; None where it was in neither."""
    calls = [call for call in recording.collectives if call.group is None and call.operation not in OF_TWO]
    raised = recording.raised
    at = next((call.at for call in calls if not call.ended), raised.at if raised else None)
    known: list[Collective | Backward] = [*calls, *recording.backwards]
    last = next((event for event in reversed(known) if at and event.at and event.at.place == at.place), None)
    return _again(last, recording) if last else None


def _broadcasts(recording: Recording) -> Iterator[SequencePoint]:
    """The forwards that send rank 0's buffers: each but those after one without autograd, or under no_sync."""
    sends = {
        wrapper.index: True
        for wrapper in recording.wrappers
        if wrapper.buffers and wrapper.ranks is None and wrapper.flags.get("broadcast_buffers", True)
    }
    for it in sorted(recording.forwards, key=lambda forward: forward.time):
        if it.around or it.wrapper not in sends:
            continue
        if sends[it.wrapper]:
            yield SequencePoint("forward", str(it.wrapper), it.at, it.time, learns=recording.learns(it))
        # DDP.require_forward_param_sync.
        sends[it.wrapper] = it.grad and it.synced


def _reductions(recording: Recording) -> Iterator[SequencePoint]:
    grouped = {wrapper.index for wrapper in recording.wrappers if wrapper.ranks is not None}
    for backward in recording.backwards:
        if _averages(backward, recording) and not grouped & set(backward.reduced):
            yield _of_backward(backward)


def _averages(backward: Backward, recording: Recording) -> bool:
    """Whether it all-reduced, or stood in an all-reduce that failed."""
    raised = recording.raised
    return bool(backward.reduced) or (raised is not None and raised.at == backward.at)


def _under_way(recording: Recording) -> Iterator[SequencePoint]:
    """The backward in which a rank stood when it was stopped: it came out of the forward, and did nothing since."""
    last = recording.trailing
    stopped = recording.exit is None and recording.raised is None
    in_collective = any(not collective.ended for collective in recording.collectives)
    if last is None or not last.forwards or not stopped or in_collective:
        return
    begun = max(forward.time for forward in last.forwards)
    times = [*(backward.time for backward in last.backwards), *(call.time for call in recording.collectives)]
    known = [backward.at for step in recording.steps for backward in step.backwards]
    if recording.learns(last.forwards[-1]) and known and max(times, default=0.0) < begun:
        yield SequencePoint("backward", "", known[-1], begun)


def _leaving(recording: Recording) -> Iterator[SequencePoint]:
    if destroyed := recording.group_events("destroy"):
        yield SequencePoint("left", "destroy_process_group", destroyed[0].at, destroyed[0].time)
    elif recording.exit is not None and recording.raised is None:
        yield SequencePoint("left", "end", recording.exit.at, recording.exit.time)
