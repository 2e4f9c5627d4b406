"""What a process under the recorder says all the time: where its main thread is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ddpdoctor.hang.stacks import Frame

NOW = ".now"
"""How the file ends, in the folder of records."""


@dataclass(frozen=True)
class Beat:
    """Where a process said last that its main thread is."""

    time: float
    moved: float
    """When it was last in a place, or had counted something, that was new."""
    thread: int = 0
    """The recorder's own, which is no sign of work."""
    at: Frame | None = None
    """The innermost of the script's own."""
    stack: tuple[Frame, ...] = ()
    """The innermost frames, outermost first."""


def read_beat(file: Path) -> Beat | None:
    """What stands in the file; None where it is absent, or is being written."""
    try:
        said = json.loads(file.read_bytes())
        at = Frame(*said["at"]) if said["at"] else None
        stack = tuple(Frame(*frame) for frame in said["stack"])
        return Beat(said["t"], said["moved"], said["thread"], at, stack)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def recorders_threads(records: Path | None) -> set[int]:
    """The threads of our recorder in all processes that it records."""
    files = records.glob(f"*{NOW}") if records else ()
    return {beat.thread for file in files if (beat := read_beat(file))}
