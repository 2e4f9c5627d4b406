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
from ddpdoctor.blame.standstill import Process
from ddpdoctor.hang.flight.calls import Call, calls
from ddpdoctor.model import Where
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


def write(trace: Trace, file: Path) -> None:
    """Write the timeline of a run.

    Raises:
        OSError: the file cannot be written.
    """
    with file.open("w", encoding="utf-8") as out:
        out.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
        for number, event in enumerate(events(trace)):
            out.write(("" if number == 0 else ",\n") + json.dumps(event))
        out.write("\n]}\n")


def events(trace: Trace) -> Iterator[dict[str, Any]]:
    """The events of all ranks, one rank after the other."""
    standstill = trace.standstill
    flight = standstill.flight if standstill else {}
    processes = standstill.ranks if standstill else {}
    recordings = {rank.rank: rank.recording for rank in trace.ranks if rank.recording}
    for rank in sorted({*recordings, *flight, *processes}):
        yield from _rank(rank, recordings.get(rank), flight.get(rank), processes.get(rank))


def _rank(
    rank: int, recording: Recording | None, dump: Dump | None, process: Process | None
) -> Iterator[dict[str, Any]]:
    host = process.host if process else recording.host if recording else dump.host if dump else ""
    yield _meta("process_name", rank, name=f"rank {rank}{f' on {host}' if host else ''}")
    yield _meta("process_sort_index", rank, sort_index=rank)
    last = recording.last + recording.clock if recording else 0.0
    recorded = _recorded(recording) if recording else ()
    flown = (_flown(call) for call in calls(dump)) if dump else ()
    lanes = _Lanes(rank)
    for one in chain(recorded, flown):
        last = max(last, one.begin, one.end or 0.0)
        yield from lanes.events(one)
    if process:
        yield from lanes.events(_standing(process, last))


def _meta(kind: str, rank: int, track: int = 0, /, **about: Any) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": rank, "tid": track, "args": about}


class _Lanes:
    """The tracks of one rank; a slice that would cross another one goes to a further track of its kind."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._open: defaultdict[str, list[list[int]]] = defaultdict(list)
        """By kind and lane: the ends of the slices that the next one may lie in."""

    def events(self, one: Slice) -> Iterator[dict[str, Any]]:
        """The event of a slice, after those that name its track; slices come in the order of their begins."""
        begin = round(one.begin * 1e6)
        end = None if one.end is None else max(begin, round(one.end * 1e6))
        lane = self._lane(one.track, begin, end)
        if lane is None:
            return
        track = TRACKS.index(one.track) * _MOST_LANES + lane + 1
        if lane == len(self._open[one.track]):
            self._open[one.track].append([])
            name = one.track if lane == 0 else f"{one.track} {lane + 1}"
            yield _meta("thread_name", self._rank, track, name=name)
            yield _meta("thread_sort_index", self._rank, track, sort_index=track)
        if end is not None:
            self._open[one.track][lane].append(end)
        yield self._event(one, track, begin, end)

    def _lane(self, kind: str, begin: int, end: int | None) -> int | None:
        lanes = self._open[kind]
        for number, ends in enumerate(lanes):
            while ends and ends[-1] <= begin:
                ends.pop()
            if end is None or not ends or end <= ends[-1]:
                return number
        return len(lanes) if len(lanes) < _MOST_LANES else None

    def _event(self, one: Slice, track: int, begin: int, end: int | None) -> dict[str, Any]:
        about = {key: value for key, value in one.about.items() if value is not None}
        event = {
            "name": one.name,
            "cat": one.track,
            "pid": self._rank,
            "tid": track,
            "ts": begin,
            "args": about,
        }
        return {**event, "ph": "i", "s": "t"} if end is None else {**event, "ph": "X", "dur": end - begin}


def _recorded(recording: Recording) -> Iterable[Slice]:
    """What our recorder saw, in the order of begins, the longer first where two begin at once."""
    slices = [
        *(one for step in recording.steps for one in _step(step, recording)),
        *_parts(recording.trailing),
        *(_forward(forward, "evaluation forward") for forward in recording.evaluation_forwards),
        *(_collective(collective, recording.last) for collective in _collectives(recording)),
        *(_pass(loader_pass, recording.last) for loader_pass in recording.passes),
        *(_file("save", one.path, one.at, one.begin, one.end or recording.last) for one in recording.saves),
        *(_file("load", one.path, one.at, one.begin, one.end or recording.last) for one in recording.loads),
        *_moments(recording),
    ]
    slices.sort(key=lambda one: (one.begin, -(one.end or one.begin)))
    return (_shift(one, recording.clock) for one in slices)


def _shift(one: Slice, clock: float) -> Slice:
    return replace(one, begin=one.begin + clock, end=None if one.end is None else one.end + clock)


def _step(step: TrainingStep, recording: Recording) -> Iterator[Slice]:
    inside = list(_parts(step))
    names = {optimizer.index: optimizer.name for optimizer in recording.optimizers}
    for one in step.optimizer_steps:
        name = f"{names.get(one.optimizer, 'optimizer')}.step"
        inside.append(Slice("training", name, one.time, one.time + one.seconds, {"at": _at(one.at)}))
    if inside:
        begin, end = min(one.begin for one in inside), max(one.end or one.begin for one in inside)
        phases = {f"{name} (s)": seconds for name, seconds in step.phases.items()}
        yield Slice("training", f"step {step.index}", begin, end, phases)
        waited = step.phases.get("data", 0.0)
        if waited > 0 and len(step.backwards) == 1:  # of several micro-batches only the sum is known
            yield Slice("data", "wait for a batch", begin - waited, begin)
    yield from inside


def _parts(step: TrainingStep | None) -> Iterator[Slice]:
    if step is not None:
        yield from (_forward(forward, "forward") for forward in step.forwards)
        yield from (_backward(backward) for backward in step.backwards)


def _forward(forward: Forward, name: str) -> Slice:
    about = {"at": _at(forward.at), "batch": forward.batch, "wrapper": forward.wrapper}
    return Slice("training", name, forward.time, forward.time + forward.seconds, about)


def _backward(backward: Backward) -> Slice:
    about = {"at": _at(backward.at), "averages": bool(backward.reduced), "collectives": backward.collectives}
    return Slice("training", "backward", backward.time, backward.time + backward.seconds, about)


def _collectives(recording: Recording) -> Iterable[Collective]:
    steps = (*recording.steps, *((recording.trailing,) if recording.trailing else ()))
    in_steps = (collective for step in steps for collective in step.collectives)
    return {id(collective): collective for collective in (*recording.collectives, *in_steps)}.values()


def _collective(one: Collective, last: float) -> Slice:
    about = {
        "at": _at(one.at),
        "group": "default" if one.group is None else str(list(one.group)),
        "shape": None if one.shape is None else str(list(one.shape)),
        "dtype": one.dtype,
        "peer": one.peer,
        "number": one.number,
        "ended": one.ended,
    }
    return Slice("collectives", one.operation, one.time, one.time + one.seconds if one.ended else last, about)


def _pass(one: Pass, last: float) -> Slice:
    what = "training" if one.training else "evaluation" if one.evaluation else "pass"
    about = {
        "at": _at(one.at),
        "batches": one.drawn,
        "of": one.batches,
        "waited (s)": one.wait,
        "ended": one.ended,
    }
    return Slice("data", f"{what} over loader {one.loader}", one.begin, one.end or last, about)


def _file(action: str, path: str, at: Where | None, begin: float, end: float) -> Slice:
    return Slice("files", action, begin, end, {"at": _at(at), "path": path or "a buffer"})


def _moments(recording: Recording) -> Iterator[Slice]:
    for one in recording.groups:
        yield Slice("process", f"group {one.action}", one.time, None, {"at": _at(one.at), "size": one.size})
    raised, exit = recording.raised, recording.exit
    if raised:
        yield Slice("process", f"raised {raised.type}", raised.time, None, {"at": _at(raised.at)})
    if exit:
        yield Slice(
            "process", f"end: {exit.how}", exit.time, None, {"at": _at(exit.at), "status": exit.status}
        )


def _flown(call: Call) -> Slice:
    about = {
        "at": call.at,
        "group": call.group,
        "number": call.number,
        "state": call.state,
        "shapes": call.shapes,
    }
    return Slice("flight recorder", call.operation, call.begin, call.end, about)


def _standing(process: Process, last: float) -> Slice:
    frame = process.stack[-1] if process.stack else None
    about = {"stack": "\n".join(map(str, process.stack)), "doing": process.doing.value, "call": process.call}
    return Slice("process", f"stands in {frame}" if frame else "stands", last, None, about)


def _at(where: Where | None) -> str | None:
    return f"{where.file}:{where.line} in {where.function}" if where else None
