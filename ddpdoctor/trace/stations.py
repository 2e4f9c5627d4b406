"""What a rank did together with the others, in order: where ranks parted, and which collective nobody joined."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ddpdoctor.hang.verdict import Verdict
from ddpdoctor.judge import NotMeasured
from ddpdoctor.model import Where
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import RankTrace, Trace
from ddpdoctor.trace.odd import by_state
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.training import Backward, Collective, Forward, TrainingStep

_OF_TWO = ("send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list")
"""Operations of two ranks, which the others have no part in."""
_FIX_FORWARD = "model.module(x)     # the bare model: no rank waits for another"
_FIX_CALL = (
    "take the call out of the condition on the rank, so that every rank makes it\n"
    "if rank == 0:\n    ...    # only what one rank can do alone"
)
_OF_ONE_SIZE = (
    *("all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "_all_gather_base"),
    *("gather", "reduce_scatter", "reduce_scatter_tensor"),
)
"""Operations whose tensors have one size on all ranks."""


@dataclass(frozen=True)
class Station:
    """Something that a rank does only together with the others; or its leaving."""

    kind: str
    """``collective`` (the script's own), ``forward`` (that broadcasts buffers), ``backward`` (that averages) or
    ``left``."""
    what: str
    """The operation; the wrapper; how it left: ``destroy_process_group`` or ``end``."""
    at: Where | None
    time: float
    size: tuple[int, str] | None = None
    """How many elements of which type, where that is the same on every rank of a right program."""
    shape: tuple[int, ...] | None = None
    learns: bool = True
    """Whether autograd was on, for a forward."""
    root: int | None = None
    """The rank that gives to all or gets from all, as the call named it."""

    @property
    def key(self) -> tuple[str, str, bool]:
        """What has to be equal on all ranks."""
        return self.kind, self.what, self.learns

    @property
    def name(self) -> str:
        """For a sentence that says what a rank called."""
        if self.kind == "forward":
            return "the wrapped model, whose forward broadcasts buffers"
        return "backward" if self.kind == "backward" else self.what


@dataclass(frozen=True)
class Parting:
    """The first position at which ranks did different things."""

    stations: Mapping[int, Station]
    """By rank; a rank whose record ends before is not there."""


def parting_of(trace: Trace) -> Parting | None:
    """Where the ranks of a run parted.

    Raises:
        NotMeasured: one rank alone, or a rank that failed by itself, whose peers could only wait for it.
    """
    recordings = trace.recordings()
    if len(recordings) < 2:
        raise NotMeasured("one rank has no other to differ from")
    first = trace.first_to_break()
    by_itself = (
        first is not None
        and (first.failure is None or not first.failure.of_a_victim)
        and not _is_abort(first)
    )
    if trace.out_of_time or by_itself:
        raise NotMeasured(trace.broken or "a rank failed")
    return parting(recordings)


def _is_abort(one: RankTrace) -> bool:
    """Whether it aborted, as gloo has a process do that was sent more than it expected."""
    return one.killed_by == signal.SIGABRT


def parting(recordings: Mapping[int, Recording], now: Mapping[int, Station] | None = None) -> Parting | None:
    """Where ranks of the default group parted; None where they did not, or the records do not show all.

    Args:
        now: in what ranks were seen to stand, of a job that stands still.
    """
    courses = {rank: _course(one, (now or {}).get(rank)) for rank, one in recordings.items()}
    known = {rank: course for rank, course in courses.items() if course is not None}
    if len(known) < len(courses) or len(known) < 2:
        return None
    for position in range(max(map(len, known.values()))):
        row = {rank: course[position] for rank, course in known.items() if position < len(course)}
        if len({one.key for one in row.values()}) > 1 or len(_sizes(row)) > 1 or len(roots(row.values())) > 1:
            return Parting(row)
    return None


def _sizes(row: Mapping[int, Station]) -> set[tuple[int, str]]:
    return {one.size for one in row.values() if one.size is not None}


def roots(row: Iterable[Station]) -> set[int]:
    """The ranks that calls of one collective named as the one that gives to all, or gets from all."""
    return {one.root for one in row if one.root is not None}


def is_extra(station: Station) -> bool:
    """Whether the script called it on its own: not a step of training, in which all ranks are to meet."""
    return station.kind == "collective" or (station.kind == "forward" and not station.learns)


def mismatch(row: Mapping[int, Station]) -> Verdict:
    """Ranks that called different collectives at one position (DD302)."""
    calls = {rank: _call(one) for rank, one in row.items()}
    rank, *others = calls
    other = next((one for one in others if calls[one] != calls[rank]), others[0])
    return Verdict(
        "DD302",
        f"rank {rank} called {calls[rank]} where rank {other} called {calls[other]}",
        why="Collectives are matched by their order alone, so these two met each other: the ranks wait for what "
        "never comes, get each other's bytes, or end with an error about sizes.",
        fix="bring every rank through the same collectives in the same order, with the same shapes: pad to the "
        "largest before a gather, or dist.all_gather_object for what differs in length",
        culprits=tuple(calls),
        where=row[rank].at,
        evidence=by_state({rank: _line(one, calls[rank]) for rank, one in row.items()}),
    )


def alone(row: Mapping[int, Station]) -> Verdict | None:
    """Ranks that called a collective while the others went on (DD303); None where they parted otherwise."""
    extra = {rank: one for rank, one in row.items() if is_extra(one)}
    others = {rank: one for rank, one in row.items() if rank not in extra}
    if not extra or not others or any(one.what == "end" for one in others.values()):
        return None
    first, went_on = next(iter(extra.values())), next(iter(others.values()))
    where_to = "the next training step" if went_on.kind == "forward" and went_on.learns else went_on.name
    who, rest = ranks_phrase(extra), ranks_phrase(others)
    return Verdict(
        "DD303",
        f"{who} alone called {first.name}, while {rest} went on to {where_to}",
        why=f"It is a collective, which needs every rank of the group: {who} waited there for {rest}, or met a "
        "collective that was meant for something else.",
        fix=_FIX_FORWARD if first.kind == "forward" else _FIX_CALL,
        culprits=tuple(extra),
        waiting=tuple(others),
        where=first.at,
        evidence=by_state({rank: _line(row[rank], row[rank].name) for rank in sorted(row)}),
    )


def _call(station: Station) -> str:
    """``all_gather of float32 [6, 1]``, ``broadcast of float32 [4] with rank 0 as its root``."""
    root = "" if station.root is None else f" with rank {station.root} as its root"
    if station.shape is None or station.size is None:
        return station.name + root
    return f"{station.what} of {station.size[1]} {list(station.shape)}{root}"


def _line(station: Station, call: str) -> str:
    return f"{call} at {station.at.file}:{station.at.line}" if station.at else call


def _course(recording: Recording, now: Station | None = None) -> list[Station] | None:
    """All that a rank did together with the others; None where not all was written down, or some of it is hidden."""
    own = [one for one in recording.collectives if one.group is None and one.operation not in _OF_TWO]
    complete = sorted(one.number for one in own if one.number is not None) == list(range(len(own)))
    hidden = any(one.sharded or one.averages for one in recording.optimizers)
    if not complete or hidden or recording.step_count > len(recording.steps):
        return None
    found = [_of_collective(one) for one in own]
    steps = (*recording.steps, *((recording.trailing,) if recording.trailing else ()))
    if any(step.joined for step in steps):
        return None
    found += [station for step in steps for station in _of_step(step, recording)]
    if now is None:
        found += _under_way(recording)
    elif now.kind != "left" and not any(one.operation == now.what and not one.ended for one in own):
        found.append(now)
    found.sort(key=lambda one: one.time)
    return [*found, *_leaving(recording)]


def _of_collective(one: Collective) -> Station:
    sized = one.operation in _OF_ONE_SIZE and one.shape is not None and one.dtype is not None
    size = (math.prod(one.shape or ()), str(one.dtype)) if sized else None
    return Station("collective", one.operation, one.at, one.time, size, one.shape, root=one.peer)


def _of_step(step: TrainingStep, recording: Recording) -> Iterator[Station]:
    broadcasting = {
        wrapper.index
        for wrapper in recording.wrappers
        if wrapper.buffers and wrapper.ranks is None and wrapper.flags.get("broadcast_buffers", True)
    }
    grouped = {wrapper.index for wrapper in recording.wrappers if wrapper.ranks is not None}
    for forward in step.forwards:
        if _meets(forward) and forward.wrapper in broadcasting:
            yield Station("forward", str(forward.wrapper), forward.at, forward.time, learns=forward.grad)
    for backward in step.backwards:
        if _averages(backward, recording) and not grouped & set(backward.reduced):
            yield Station("backward", "", backward.at, backward.time)


def _meets(forward: Forward) -> bool:
    return forward.synced and not forward.around


def _averages(backward: Backward, recording: Recording) -> bool:
    """Whether it all-reduced, or stood in an all-reduce that failed."""
    raised = recording.raised
    return bool(backward.reduced) or (raised is not None and raised.at == backward.at)


def _under_way(recording: Recording) -> Iterator[Station]:
    """The backward in which a rank stood when it was stopped: it came out of the forward, and did nothing since."""
    last = recording.trailing
    stopped = recording.exit is None and recording.raised is None
    if (
        last is None
        or not stopped
        or not last.forwards
        or any(not one.ended for one in recording.collectives)
    ):
        return
    begun = max(one.time for one in last.forwards)
    times = [*(one.time for one in last.backwards), *(one.time for one in recording.collectives)]
    known = [one.at for step in recording.steps for one in step.backwards]
    if last.forwards[-1].grad and known and max(times, default=0.0) < begun:
        yield Station("backward", "", known[-1], begun)


def _leaving(recording: Recording) -> Iterator[Station]:
    destroyed = next((one for one in recording.groups if one.action == "destroy"), None)
    if destroyed is not None:
        yield Station("left", "destroy_process_group", destroyed.at, destroyed.time)
    elif recording.exit is not None and recording.raised is None:
        yield Station("left", "end", recording.exit.at, recording.exit.time)
