"""Where each rank of a job that stands still is: by its stack, by its record, or as one that has left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile

from ddpdoctor.blame.frames import function
from ddpdoctor.blame.place import ASYNCHRONOUS, Kind, Place, place_of
from ddpdoctor.blame.standstill import Doing, Process, Role, Standstill
from ddpdoctor.model import Where
from ddpdoctor.trace import RankTrace, Trace
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.training import Collective


@dataclass(frozen=True)
class Standing:
    """One rank."""

    rank: int
    place: Place | None = None
    """None where neither stack nor record tells."""
    process: Process | None = None
    recording: Recording | None = None
    workers: tuple[Process, ...] = ()
    left: str = ""
    """How it ended, with status 0: ``returned``, ``exit``, ``os._exit``; empty where it did not."""
    failed: bool = False

    @property
    def waits(self) -> bool:
        """Whether it waits for other ranks, by what can be seen."""
        return not self.left and not self.stopped and self.place is not None and self.place.waits

    @property
    def stopped(self) -> bool:
        """Whether a signal or a debugger holds it."""
        return self.process is not None and self.process.doing is Doing.STOPPED

    @property
    def seen(self) -> bool:
        """Whether it is there, and it is known where."""
        return not self.left and (self.place is not None or self.stopped)

    @property
    def where(self) -> Where | None:
        """The innermost line of the script's own."""
        return self.place.where if self.place else None

    @property
    def call(self) -> Collective | None:
        """The collective of the script's in which it stands, where its record has it."""
        if (
            self.recording is None
            or self.place is None
            or self.place.kind not in (Kind.COLLECTIVE, Kind.PAIR)
        ):
            return None
        return open_call(self.recording) or (
            _message(self.recording) if self.place.kind is Kind.PAIR else None
        )

    @property
    def group(self) -> tuple[int, ...] | None:
        """The members of the group in whose collective it waits; None for every rank."""
        if self.call is not None:
            return self.call.group
        if self.recording and self.place and self.place.kind in (Kind.BACKWARD, Kind.FORWARD):
            groups = {wrapper.ranks for wrapper in self.recording.wrappers}
            return next(iter(groups)) if len(groups) == 1 else None
        return None


def standings(trace: Trace) -> dict[int, Standing]:
    """Every rank of the job, by rank."""
    standstill = trace.standstill or Standstill()
    by_rank = {one.rank: one for one in trace.ranks}
    processes = standstill.ranks
    size = standstill.world_size or trace.world_size or _wanted(trace)
    known = {*by_rank, *processes, *standstill.flight, *range(size)}
    workers: dict[int, list[Process]] = {}
    for one in standstill.processes:
        if one.role is Role.WORKER and one.rank is not None:
            workers.setdefault(one.rank, []).append(one)
    return {
        rank: _standing(rank, by_rank.get(rank), processes.get(rank), tuple(workers.get(rank, ())))
        for rank in sorted(known)
    }


def _wanted(trace: Trace) -> int:
    """How many ranks those that wait to join a group have been told of; 0 where none was."""
    events = [event for one in trace.ranks if one.recording for event in one.recording.groups]
    told = (event.arguments.get("world_size", event.environ.get("WORLD_SIZE", "")) for event in events)
    return max((int(size) for size in map(str, told) if size.isdigit()), default=0)


def _standing(
    rank: int, traced: RankTrace | None, process: Process | None, workers: tuple[Process, ...]
) -> Standing:
    recording = traced.recording if traced else None
    failed = _failed(traced, process)
    left = "" if failed else _left(traced, process)
    place = None if left or failed else _place(process, recording)
    return Standing(rank, place, process, recording, workers, left, failed)


def _failed(traced: RankTrace | None, process: Process | None) -> bool:
    if traced is not None and traced.failure is not None and not traced.finished:
        return True
    return process is not None and process.doing is Doing.GONE and bool(process.exit_status)


def _left(traced: RankTrace | None, process: Process | None) -> str:
    recording = traced.recording if traced else None
    ended = recording.exit if recording else None
    if ended is not None and not (recording and recording.raised) and not ended.status:
        return ended.how
    if process is not None and process.doing is Doing.GONE and process.exit_status == 0:
        return "returned"
    return "returned" if traced is not None and traced.finished and process is None else ""


def _place(process: Process | None, recording: Recording | None) -> Place | None:
    """By its stack; by its record where there is none."""
    found = place_of(process, nccl=_uses_nccl(recording)) if process is not None else None
    if found is not None and found.what == ASYNCHRONOUS and recording and (message := _message(recording)):
        return replace(found, kind=Kind.PAIR, what=message.operation)
    if found is not None or (process is not None and process.doing is Doing.STOPPED):
        return found
    return _recorded_place(recording) if recording is not None else None


def _uses_nccl(recording: Recording | None) -> bool:
    groups = recording.groups if recording else ()
    return any("nccl" in (event.backend or "") for event in groups)


def _recorded_place(recording: Recording) -> Place | None:
    last = recording.groups[-1] if recording.groups else None
    if last is not None and last.action in _UNDER_WAY:
        kind, what = _UNDER_WAY[last.action]
        return Place(kind, what, last.at)
    if call := open_call(recording):
        return Place(Kind.PAIR if call.operation in _OF_TWO else Kind.COLLECTIVE, call.operation, call.at)
    wrapper = next((one for one in recording.wrappers if not one.ready and one.failed is None), None)
    if wrapper is not None:
        return Place(Kind.WRAP, "the constructor of DistributedDataParallel", wrapper.at)
    return None


_OF_TWO = ("send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list")
_UNDER_WAY = {
    "joining": (Kind.JOIN, "init_process_group"),
    "making": (Kind.GROUP, "new_group"),
    "destroy": (Kind.DESTROY, "destroy_process_group"),
}


def open_call(recording: Recording) -> Collective | None:
    """The collective that a rank has begun and not ended."""
    begun = [one for one in recording.collectives if not one.ended]
    return max(begun, key=lambda one: one.time, default=None)


def _message(recording: Recording) -> Collective | None:
    """The message that a rank started last, where it called no collective since; with its peer where all had one."""
    calls = sorted(recording.collectives, key=lambda one: one.time, reverse=True)
    messages = list(takewhile(lambda one: one.operation in _OF_TWO, calls))
    if not messages:
        return None
    peers = {one.peer for one in messages}
    return replace(messages[0], peer=peers.pop() if len(peers) == 1 else None)


@dataclass(frozen=True)
class State:
    """What ranks have to share to be in one collective together."""

    kind: Kind
    what: str
    group: tuple[int, ...] | None = None
    number: int | None = None
    more: tuple[object, ...] = field(default=())


def state_of(one: Standing) -> State:
    """The collective in which a rank waits."""
    assert one.place is not None
    call = one.call
    if one.place.kind is Kind.PAIR:
        return State(one.place.kind, one.place.what, one.group, None, (one.rank,))
    shape = (call.shape, call.dtype) if call and call.shape and call.operation in _OF_ONE_SIZE else ()
    return State(one.place.kind, one.place.what, one.group, call.number if call else None, shape)


_OF_ONE_SIZE = ("all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "gather")


def stuck_worker(one: Standing) -> Process | None:
    """The DataLoader worker that is in the script's code, for which the rank waits; None where none is seen to be."""
    return next((worker for worker in one.workers if is_loading(worker)), None)


def is_loading(worker: Process) -> bool:
    """Whether a worker fetches a sample: one that has nothing to do waits in its loop for an index."""
    names = {function(frame) for frame in worker.stack if "torch/utils/data/" in frame.file}
    return "_worker_loop" in names and bool(names - {"_worker_loop"}) and "fetch" in names


def recordings_of(crowd: Mapping[int, Standing]) -> dict[int, Recording]:
    """What was recorded, by rank."""
    return {rank: one.recording for rank, one in crowd.items() if one.recording is not None}
