"""Where each rank of a job that stands still is, by its stack, by its record, or as one that has left; what it looks
for, and what it handles."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from ddpdoctor.blame.frames import Frame, function, is_of_script, where_of
from ddpdoctor.blame.hang_snapshot import Doing, HangSnapshot, ProcessRole, SampledProcess
from ddpdoctor.blame.place import ASYNCHRONOUS, OF_TWO, Place, PlaceKind, place_of
from ddpdoctor.blame.rank_state import RankState
from ddpdoctor.failures import VICTIM, says
from ddpdoctor.program import Program
from ddpdoctor.program.handlers import Way, way_of
from ddpdoctor.program.polls import Poll
from ddpdoctor.recorder.events.files import FileEvent, FileRead, PathAsked
from ddpdoctor.recorder.events.training import Collective
from ddpdoctor.trace import RankTrace, Trace
from ddpdoctor.trace.loop_exits import last_update, name_of, open_call
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.sequence import OF_ONE_SIZE

_UNDER_WAY = {
    "joining": (PlaceKind.JOIN, "init_process_group"),
    "making": (PlaceKind.GROUP, "new_group"),
    "destroy": (PlaceKind.DESTROY, "destroy_process_group"),
}


def rank_states(trace: Trace) -> dict[int, RankState]:
    """Every rank of the job, by rank."""
    snapshot = trace.snapshot or HangSnapshot()
    by_rank = {rank.rank: rank for rank in trace.ranks}
    processes = snapshot.ranks
    known = {*by_rank, *processes, *_expected(trace, snapshot)}
    workers: dict[int, list[SampledProcess]] = {}
    for process in snapshot.processes:
        if process.role is ProcessRole.WORKER and process.rank is not None:
            workers.setdefault(process.rank, []).append(process)
    return {
        rank: _rank_state(rank, by_rank.get(rank), processes.get(rank), tuple(workers.get(rank, ())))
        for rank in sorted(known)
    }


def _expected(trace: Trace, snapshot: HangSnapshot) -> Iterable[int]:
    """The ranks that there should be; imaginary ones are waited for by nobody."""
    if trace.imagined is not None:
        return trace.imagined.ranks  # flight recorders number the processes
    size = snapshot.world_size or trace.world_size or _wanted(trace)
    return (*snapshot.flight, *range(size))


def _wanted(trace: Trace) -> int:
    """How many ranks those that wait to join a group have been told of; 0 where none was."""
    events = [event for rank in trace.ranks if rank.recording for event in rank.recording.groups]
    sizes = (event.arguments.get("world_size", event.environ.get("WORLD_SIZE", "")) for event in events)
    return max((int(size) for size in map(str, sizes) if size.isdigit()), default=0)


def _rank_state(
    rank: int, traced: RankTrace | None, process: SampledProcess | None, workers: tuple[SampledProcess, ...]
) -> RankState:
    recording = traced.recording if traced else None
    failed = _failed(traced, process)
    left = "" if failed else _left(traced, process)
    place = None if left or failed else _place(process, recording)
    left_at = recording.exit.at if recording and recording.exit else None
    peer = place.peer if place and place.kind is PlaceKind.PAIR else None
    state = RankState(rank, place, process, workers, left, left_at, failed, peer=peer)
    return _with_call(state, recording, place) if recording and place else state


def _with_call(state: RankState, recording: Recording, place: Place) -> RankState:
    """The same with what the record tells of the call in which it stands."""
    if place.kind in (PlaceKind.BACKWARD, PlaceKind.FORWARD):
        groups = {wrapper.ranks for wrapper in recording.wrappers}
        return replace(state, group=next(iter(groups)) if len(groups) == 1 else None)
    if place.kind not in (PlaceKind.COLLECTIVE, PlaceKind.PAIR):
        return state
    call = open_call(recording) or (_message(recording) if place.kind is PlaceKind.PAIR else None)
    if call is None:
        return state
    tensor = (call.shape, call.dtype) if call.shape and call.operation in OF_ONE_SIZE else ()
    peer = state.peer if call.peer is None else call.peer
    return replace(
        state, group=call.group, group_name=call.group_name, peer=peer, number=call.number, tensor=tensor
    )


def _failed(traced: RankTrace | None, process: SampledProcess | None) -> bool:
    if traced is not None and traced.failure is not None and not traced.finished:
        return True
    return process is not None and process.doing is Doing.GONE and bool(process.exit_status)


def _left(traced: RankTrace | None, process: SampledProcess | None) -> str:
    recording = traced.recording if traced else None
    ended = recording.exit if recording else None
    if ended is not None and not (recording and recording.raised) and not ended.status:
        return ended.how
    if process is not None and process.doing is Doing.GONE and process.exit_status == 0:
        return "returned"
    return "returned" if traced is not None and traced.finished and process is None else ""


def _place(process: SampledProcess | None, recording: Recording | None) -> Place | None:
    """By its stack; by its record where there is none."""
    place = place_of(process, nccl=_uses_nccl(recording)) if process is not None else None
    if place is not None and place.what == ASYNCHRONOUS and recording and (message := _message(recording)):
        return replace(place, kind=PlaceKind.PAIR, what=message.operation)
    if place is not None or (process is not None and process.doing is Doing.STOPPED):
        return place
    return _recorded_place(recording) if recording is not None else None


def _uses_nccl(recording: Recording | None) -> bool:
    groups = recording.groups if recording else ()
    return any("nccl" in (event.backend or "") for event in groups)


def _recorded_place(recording: Recording) -> Place | None:
    last = recording.groups[-1] if recording.groups else None
    if last is not None and last.action in _UNDER_WAY and not last.returned:
        kind, what = _UNDER_WAY[last.action]
        return Place(kind, what, last.at)
    if call := open_call(recording):
        kind = PlaceKind.PAIR if call.operation in OF_TWO else PlaceKind.COLLECTIVE
        return Place(kind, call.operation, call.at)
    for wrapper in recording.wrappers:
        if not wrapper.ready and wrapper.failed is None:
            return Place(PlaceKind.WRAP, "the constructor of DistributedDataParallel", wrapper.at)
    return None


def _message(recording: Recording) -> Collective | None:
    """The message that a rank started last, where it called no collective since; with its peer where all had one."""
    calls = sorted(recording.collectives, key=lambda collective: collective.time, reverse=True)
    messages = list(takewhile(lambda call: call.operation in OF_TWO, calls))
    if not messages:
        return None
    peers = {message.peer for message in messages}
    return replace(messages[0], peer=peers.pop() if len(peers) == 1 else None)


def awaited_path(rank: int, poll: Poll, recordings: Mapping[int, Recording]) -> dict[str, Any]:
    """What a :class:`Polls` tells of the file or folder that a rank looks at; nothing where its record names none."""
    own = recordings.get(rank)
    if own is None:
        return {}
    seen: list[PathAsked | FileEvent | FileRead] = [*own.asked, *own.files, *own.events(FileRead)]
    here = [event for event in seen if _is_in(event, poll)]
    if not here:
        return {}
    path = max(here, key=lambda event: event.time).path
    events = [
        (event.time + recording.clock, other, event)
        for other, recording in recordings.items()
        for event in recording.files
        if event.path == path and not (other == rank and _is_in(event, poll))
    ]
    last = max(events, key=lambda it: it[0], default=None)
    made = [it for it in events if it[2].action != "remove"]
    by = max(made, key=lambda it: it[0], default=None)
    by_rank = {"made_by": by[1], "made_at": by[2].at} if by else {}
    return {"path": path, "removed": last is not None and last[2].action == "remove", **by_rank}


def _is_in(event: PathAsked | FileEvent | FileRead, poll: Poll) -> bool:
    at = event.at
    return at is not None and at.file == poll.at.file and at.line in poll.lines


def ends_its_work(state: RankState, recording: Recording | None) -> bool:
    """Whether the exception that a rank handles ended its work, and is not what it works on with, as one does that
    finds no checkpoint."""
    process = state.process
    if process is None or process.handles is None or state.place is None:
        return False
    handled = process.handles
    in_collective = state.place.kind in (PlaceKind.COLLECTIVE, PlaceKind.DESTROY)
    if not in_collective or says(f"{handled.type}: {handled.message}", *VICTIM):
        return False
    inside = _since(process.stack, handled.holder)
    if inside is None:
        return False
    way = way_of(handled.holder.file, handled.holder.line, handled.tried.line)
    if way is Way.GOES_ON:
        return True
    update = last_update(recording) if recording else None
    if way is not Way.MAY_END or update is None:
        return False
    loops = Program.holding(update, recording.script if recording else "").loops
    trains = any(function(frame) == name_of(update) for frame in inside if is_of_script(frame))
    came = any(loops.share_a_loop(update, where_of(frame)) for frame in handled.frames)
    return came and not trains and loops.is_behind(update, where_of(handled.holder))


def _since(stack: Sequence[Frame], holder: Frame) -> Sequence[Frame] | None:
    """The frames below the one that handles it; None where that is not on the stack."""
    position = next((number for number, frame in enumerate(stack) if _same(frame, holder)), None)
    return None if position is None else stack[position + 1 :]


def _same(frame: Frame, other: Frame) -> bool:
    """Whether two looks, which name files and functions in ways of their own, saw one place."""
    name = Path(frame.file).name == Path(other.file).name
    return name and frame.line == other.line and function(frame) == function(other)
