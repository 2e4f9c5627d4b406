"""What the ranks did and when, as a trace that Perfetto and chrome://tracing open.

The format is Chrome's trace events as JSON: a process for each rank, tracks in it, and on a track slices that lie
side by side or inside each other. It is written event by event, so that a long run needs no memory.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from ddpdoctor.blame.dump import Dump
from ddpdoctor.blame.hang_snapshot import SampledProcess
from ddpdoctor.files import in_place_of
from ddpdoctor.hang.flight.reading import DumpedCall, calls
from ddpdoctor.model import Where
from ddpdoctor.recorder.events.files import Load, Save
from ddpdoctor.recorder.events.training import Backward, Collective, Forward
from ddpdoctor.trace import Trace
from ddpdoctor.trace.data import Pass
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.training import TrainingStep

TRACKS = ("training", "collectives", "data", "files", "flight recorder", "process")
"""In the order in which they are shown; a further one of each kind where slices would cross."""
_MOST_LANES = 100
"""Tracks of one kind; what crosses more is left out."""


@dataclass(frozen=True)
class Slice:
    """Something that took time, in seconds since the epoch; a moment where it has no end."""

    track: str
    name: str
    begin: float
    end: float | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    event: Any = None
    """What it shows; None of what is put together."""
    step: int | None = None
    """The training step that it is a part of."""


def write(trace: Trace, file: Path) -> None:
    """Write the timeline of a run.

    Raises:
        OSError: the file cannot be written.
    """
    with in_place_of(file) as draft, draft.open("w", encoding="utf-8") as out:
        out.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
        for number, event in enumerate(events(trace)):
            out.write(("" if number == 0 else ",\n") + json.dumps(event))
        out.write("\n]}\n")


def events(trace: Trace) -> Iterator[dict[str, Any]]:
    """The events of all ranks, one rank after the other."""
    snapshot = trace.snapshot
    flight = snapshot.flight if snapshot else {}
    processes = snapshot.ranks if snapshot else {}
    recordings = trace.recorded
    for rank in sorted({*recordings, *flight, *processes}):
        yield from _rank(rank, recordings.get(rank), flight.get(rank), processes.get(rank))


def _rank(
    rank: int, recording: Recording | None, dump: Dump | None, process: SampledProcess | None
) -> Iterator[dict[str, Any]]:
    host = process.host if process else recording.host if recording else dump.host if dump else ""
    yield _meta("process_name", rank, name=f"rank {rank}{f' on {host}' if host else ''}")
    yield _meta("process_sort_index", rank, sort_index=rank)
    last = recording.last + recording.clock if recording else 0.0
    recorded = slices(recording) if recording else ()
    flown = (_flown(call) for call in calls(dump)) if dump else ()
    lanes = _Lanes(rank)
    for slice_ in chain(recorded, flown):
        last = max(last, slice_.begin, slice_.end or 0.0)
        yield from lanes.events(slice_)
    if process:
        yield from lanes.events(_rank_state(process, last))


def _meta(kind: str, rank: int, track: int = 0, /, **about: Any) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": rank, "tid": track, "args": about}


class _Lanes:
    """The tracks of one rank; a slice that would cross another one goes to a further track of its kind."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._open: defaultdict[str, list[list[int]]] = defaultdict(list)
        """By kind and lane: the ends of the slices that the next one may lie in."""

    def events(self, slice_: Slice) -> Iterator[dict[str, Any]]:
        """The event of a slice, after those that name its track; slices come in the order of their begins."""
        begin = round(slice_.begin * 1e6)
        end = None if slice_.end is None else max(begin, round(slice_.end * 1e6))
        lane, lanes = self._lane(slice_.track, begin, end), self._open[slice_.track]
        if lane is None:
            return
        track = TRACKS.index(slice_.track) * _MOST_LANES + lane + 1
        if lane == len(lanes):
            lanes.append([])
            name = slice_.track if lane == 0 else f"{slice_.track} {lane + 1}"
            yield _meta("thread_name", self._rank, track, name=name)
            yield _meta("thread_sort_index", self._rank, track, sort_index=track)
        if end is not None:
            lanes[lane].append(end)
        yield self._event(slice_, track, begin, end)

    def _lane(self, kind: str, begin: int, end: int | None) -> int | None:
        lanes = self._open[kind]
        for number, ends in enumerate(lanes):
            while ends and ends[-1] <= begin:
                ends.pop()
            if end is None or not ends or end <= ends[-1]:
                return number
        return len(lanes) if len(lanes) < _MOST_LANES else None

    def _event(self, slice_: Slice, track: int, begin: int, end: int | None) -> dict[str, Any]:
        about = {key: value for key, value in slice_.about.items() if value is not None}
        names = {"name": slice_.name, "cat": slice_.track}
        event = {**names, "pid": self._rank, "tid": track, "ts": begin, "args": about}
        return {**event, "ph": "i", "s": "t"} if end is None else {**event, "ph": "X", "dur": end - begin}


def slices(recording: Recording) -> Iterable[Slice]:
    """What our recorder saw, in the order of begins, the longer first where two begin at once."""
    last = recording.last
    every = [
        *chain.from_iterable(_step(step, recording) for step in recording.steps),
        *_parts(recording.trailing),
        *(_forward(forward, "evaluation forward") for forward in recording.evaluation_forwards),
        *(_collective(collective, last) for collective in _collectives(recording)),
        *(_pass(pass_, last) for pass_ in recording.passes),
        *(_file("save", save, last) for save in recording.saves),
        *(_file("load", load, last) for load in recording.loads),
        *_moments(recording),
    ]
    every.sort(key=lambda it: (it.begin, -(it.end or it.begin)))
    return (_shift(slice_, recording.clock) for slice_ in every)


def _shift(slice_: Slice, clock: float) -> Slice:
    end = None if slice_.end is None else slice_.end + clock
    return replace(slice_, begin=slice_.begin + clock, end=end)


def _step(step: TrainingStep, recording: Recording) -> Iterator[Slice]:
    inside, number = list(_parts(step)), step.index
    names = {optimizer.index: optimizer.name for optimizer in recording.optimizers}
    for update in step.optimizer_steps:
        name = f"{names.get(update.optimizer, 'optimizer')}.step"
        end = update.time + update.seconds
        inside.append(Slice("training", name, update.time, end, {"at": _at(update.at)}, update, number))
    if inside:
        begin, end = min(part.begin for part in inside), max(part.end or part.begin for part in inside)
        phases = {f"{name} (s)": seconds for name, seconds in step.phases.items()}
        yield Slice("training", f"step {number}", begin, end, phases)
        waited = step.phases.get("data", 0.0)
        if waited > 0 and len(step.backwards) == 1:  # of several micro-batches only the sum is known
            yield Slice("data", "wait for a batch", begin - waited, begin, step=number)
    yield from inside


def _parts(step: TrainingStep | None) -> Iterator[Slice]:
    if step is not None:
        yield from (_forward(forward, "forward", step.index) for forward in step.forwards)
        yield from (_backward(backward, step.index) for backward in step.backwards)


def _forward(forward: Forward, name: str, step: int | None = None) -> Slice:
    about = {"at": _at(forward.at), "batch": forward.batch, "wrapper": forward.wrapper}
    return Slice("training", name, forward.time, forward.time + forward.seconds, about, forward, step)


def _backward(backward: Backward, step: int) -> Slice:
    about = {"at": _at(backward.at), "averages": bool(backward.reduced), "collectives": backward.collectives}
    end = backward.time + backward.seconds
    return Slice("training", "backward", backward.time, end, about, backward, step)


def _collectives(recording: Recording) -> Iterable[Collective]:
    in_steps = (collective for step in recording.all_steps for collective in step.collectives)
    return {id(collective): collective for collective in (*recording.collectives, *in_steps)}.values()


def _collective(call: Collective, last: float) -> Slice:
    about = {
        "at": _at(call.at),
        "group": "default" if call.group is None else str(list(call.group)),
        "shape": None if call.shape is None else str(list(call.shape)),
        "dtype": call.dtype,
        "peer": call.peer,
        "number": call.number,
        "ended": call.ended,
    }
    end = call.time + call.seconds if call.ended else last
    return Slice("collectives", call.operation, call.time, end, about, call)


def _pass(pass_: Pass, last: float) -> Slice:
    what = "training" if pass_.training else "evaluation" if pass_.evaluation else "pass"
    about = {
        "at": _at(pass_.at),
        "batches": pass_.drawn,
        "of": pass_.batches,
        "waited (s)": pass_.wait,
        "ended": pass_.ended,
    }
    end = last if pass_.end is None else pass_.end
    return Slice("data", f"{what} over loader {pass_.loader}", pass_.begin, end, about, pass_)


def _file(action: str, event: Save | Load, last: float) -> Slice:
    about = {"at": _at(event.at), "path": event.path or "a buffer"}
    end = last if event.end is None else event.end
    return Slice("files", action, event.begin, end, about, event)


def _moments(recording: Recording) -> Iterator[Slice]:
    for group in recording.groups:
        about = {"at": _at(group.at), "size": group.size}
        yield Slice("process", f"group {group.action}", group.time, None, about)
    raised, exit = recording.raised, recording.exit
    if raised:
        yield Slice("process", f"raised {raised.type}", raised.time, None, {"at": _at(raised.at)})
    if exit:
        about = {"at": _at(exit.at), "status": exit.status}
        yield Slice("process", f"end: {exit.how}", exit.time, None, about)


def _flown(call: DumpedCall) -> Slice:
    about = {
        "at": call.at,
        "group": call.group,
        "number": call.number,
        "state": call.state,
        "shapes": call.shapes,
    }
    return Slice("flight recorder", call.operation, call.begin, call.end, about)


def _rank_state(process: SampledProcess, last: float) -> Slice:
    frame = process.stack[-1] if process.stack else None
    about = {"stack": "\n".join(map(str, process.stack)), "doing": process.doing.value, "call": process.call}
    return Slice("process", f"stands in {frame}" if frame else "stands", last, None, about)


def _at(where: Where | None) -> str | None:
    return f"{where.file}:{where.line} in {where.function}" if where else None
