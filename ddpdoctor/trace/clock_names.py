"""Folders that ranks name by the time, each by its own clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ddpdoctor.model import Where
from ddpdoctor.program import Origin, Program
from ddpdoctor.recorder.events.files import LogWriter
from ddpdoctor.trace.recording import Recording


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
