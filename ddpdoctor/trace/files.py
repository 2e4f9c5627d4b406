"""Files that ranks share: who writes and who reads, what is bound to happen before what on another rank, which path an
error is about, and folders that each names by its clock."""

import os.path
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass

from ddpdoctor.model import Where
from ddpdoctor.program import Origin, Program
from ddpdoctor.recorder.events.files import FileRead, Load, LogWriter, Save
from ddpdoctor.recorder.operations import Kind, kind_of
from ddpdoctor.trace.recording import Recording

_READING = 5.0
"""Seconds between opening a file and the exception that is about what was in it."""
_READING_LINES = 3
"""The same in lines of one function."""
_QUOTED = re.compile(r"'([^']+)'")

Exchange = tuple[int, Save, int, Load]
"""Who writes, what, who reads, what."""


def exchanged(recordings: Mapping[int, Recording]) -> Iterator[Exchange]:
    """Each read of a file that another rank writes; on another host it is another file, or may be."""
    for writer, recording in recordings.items():
        for save in recording.saves:
            for reader, other in recordings.items():
                if save.path and reader != writer and other.host == recording.host:
                    yield from ((writer, save, reader, it) for it in other.loads if it.path == save.path)


def is_of_training(recordings: Mapping[int, Recording], path: str) -> bool:
    """Whether ranks write this file only after their first training step, as results are."""
    written = [
        (recording, event.time)
        for recording in recordings.values()
        for event in recording.files
        if (event.action, event.path) == ("write", path)
    ]
    return bool(written) and all(it.steps and it.steps[0].time < time for it, time in written)


def is_named(path: str, message: str) -> bool:
    """Whether the message of an OSError is about this path, which it gives as the script did."""
    names = [os.path.normpath(name) for name in _QUOTED.findall(message) if message.startswith("[Errno ")]
    return any(path == name or path.endswith(f"/{name}") for name in names)


def read_last(recording: Recording) -> FileRead | None:
    """The file that this rank was reading when it failed, as far as that shows."""
    raised = recording.raised
    if raised is None or raised.at is None:
        return None
    at, since = raised.at, raised.time - _READING
    for read in reversed(recording.events(FileRead)):  # what printed the exception has read its source since
        if read.at and since <= read.time <= raised.time:
            behind = (at.line or 0) - (read.at.line or 0)
            if (read.at.file, read.at.function) == (at.file, at.function) and 0 <= behind <= _READING_LINES:
                return read
    return None


def changed_by_others(recordings: Mapping[int, Recording], rank: int, message: str) -> bool:
    """Whether this rank failed on a path that another rank of its host writes, makes or removes.

    An OSError names it; any other exception may be about what was in a file that was just opened.
    """
    if rank not in recordings:
        return False
    read = read_last(recordings[rank])
    host = recordings[rank].host
    peers = [recording for peer, recording in recordings.items() if peer != rank and recording.host == host]
    paths = [save.path for peer in peers for save in peer.saves]
    paths += [event.path for peer in peers for event in peer.files if event.action != "lock"]
    return any(is_named(path, message) or (read is not None and path == read.path) for path in paths)


@dataclass(frozen=True)
class ClockName:
    """A folder that has another name on each rank."""

    at: Where
    paths: Mapping[int, str]


def named_by_clocks(recordings: Mapping[int, Recording]) -> list[ClockName]:
    """The lines at which ranks of a host made a folder, or opened a log, each under another name, of which the time is
    a part, and nothing else that a rank has of its own."""
    made: defaultdict[tuple[str, Where], dict[int, str]] = defaultdict(dict)
    for rank, recording in recordings.items():
        for at, path in _made(recording):
            if at is not None:
                made[recording.host, at][rank] = path
    script = next((it.script for it in recordings.values()), "")
    return [
        ClockName(at, paths)
        for (_, at), paths in made.items()
        if len(set(paths.values())) > 1 and _is_of_clock(at, script)
    ]


def _made(recording: Recording) -> Iterator[tuple[Where | None, str]]:
    yield from ((event.at, event.path) for event in recording.files if event.action == "mkdir")
    yield from ((writer.at, writer.target) for writer in recording.events(LogWriter))


def _is_of_clock(at: Where, script: str) -> bool:
    kinds = Program.holding(at, script).given_at(at).kinds
    return Origin.CLOCK in kinds and kinds.isdisjoint({Origin.RANK, Origin.RANDOM, Origin.OWN_DATA})


class HappensBefore:
    """The order that collectives, updates and wrappers force upon the ranks of one run."""

    def __init__(self, recordings: Mapping[int, Recording]) -> None:
        self._moments = {rank: dict(_moments(recording)) for rank, recording in recordings.items()}

    def is_forced(self, first: int, ended: float, second: int, begins: float) -> bool:
        """Whether what rank ``first`` did until ``ended`` had to be over when rank ``second`` went on at ``begins``.

        That one came later by the clock proves nothing: another day it may not.
        """
        if first == second:
            return ended <= begins
        met = self._moments.get(second, {})
        return any(
            came >= ended and (source is None or source == first) and key in met and met[key][0] < begins
            for key, (came, source) in self._moments.get(first, {}).items()
        )

    def may_overlap(
        self, first: int, span: tuple[float, float], second: int, other: tuple[float, float]
    ) -> bool:
        """Whether nothing forces one of two spans of time, one on each rank, to be over before the other."""
        is_before = self.is_forced(first, span[1], second, other[0])
        return not (is_before or self.is_forced(second, other[1], first, span[0]))


def _moments(recording: Recording) -> Iterator[tuple[Hashable, tuple[float, int | None]]]:
    """Each moment by a key that all ranks share: when this rank came, and the one rank that others wait for.

    Numbers count the calls of a group, of which every member makes the same.
    """
    calls = [call for call in recording.collectives if kind_of(call.operation) is not Kind.PAIR]
    places: Counter[tuple[int, ...] | None] = Counter()
    for call in calls:
        number = places[call.group] if call.number is None else call.number
        places[call.group] += 1
        key = ("collective", call.group, number, call.operation)
        if kind_of(call.operation) is Kind.ALL:
            yield key, (call.time, None)
        elif kind_of(call.operation) is Kind.FROM_ONE and call.peer is not None:
            yield key, (call.time, call.peer)
    for step in recording.steps:
        for backward in step.backwards:
            if backward.reduced:
                yield ("step", step.index), (backward.time, None)
    for wrapper in recording.wrappers:
        yield ("wrapper", wrapper.index), (wrapper.time, None)
    for number, event in enumerate(recording.group_events("init")):
        yield ("group", number), (event.time, None)
