"""What a rank that looks again and again looks for, and who would give it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ddpdoctor.model import Where
from ddpdoctor.program.polls import Poll
from ddpdoctor.recorder.events.files import FileEvent, FileRead, PathAsked
from ddpdoctor.trace.recording import Recording


@dataclass(frozen=True)
class Awaited:
    """The path that a rank looks at."""

    path: str
    by: int | None
    """The rank that made it last; None where none did."""
    made: Where | None
    removed: bool
    """Whether a rank has removed it since."""


def awaited_path(rank: int, poll: Poll, recordings: Mapping[int, Recording]) -> Awaited | None:
    """The file or folder that a rank looks at; None where its record names none."""
    own = recordings.get(rank)
    if own is None:
        return None
    seen: list[PathAsked | FileEvent | FileRead] = [*own.asked, *own.files, *own.events(FileRead)]
    here = [event for event in seen if _is_in(event, poll)]
    if not here:
        return None
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
    removed = last is not None and last[2].action == "remove"
    return Awaited(path, by[1] if by else None, by[2].at if by else None, removed)


def _is_in(event: PathAsked | FileEvent | FileRead, poll: Poll) -> bool:
    at = event.at
    return at is not None and at.file == poll.at.file and at.line in poll.lines
