"""What recorders tell: all the time where the main thread is, or the one that trains; its whole stack when asked."""

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddpdoctor.blame.frames import Frame
from ddpdoctor.blame.hang_snapshot import ActiveException
from ddpdoctor.files import read_json, write_whole

NOW = ".now"
"""How the file ends, in the folder of records."""


@dataclass(frozen=True)
class Heartbeat:
    """Where a process said last that it is."""

    time: float
    moved: float
    """When it was last in a place, or had counted something, that was new."""
    thread: int = 0
    """The recorder's own, which is no sign of work."""
    at: Frame | None = None
    """The innermost of the script's own."""
    stack: tuple[Frame, ...] = ()
    """The innermost frames, outermost first."""
    main: bool = True
    """Whether it is the main thread that is there; else it is another one, which trains."""
    handles: ActiveException | None = None
    """An exception, where it has been in one place for a second."""
    steps: int = 0
    """Training steps that it has ended."""
    data_seconds: float = 0.0
    """That it has waited for batches so far."""


def read_heartbeat(file: Path) -> Heartbeat | None:
    """What stands in the file; None where it is absent, or is being written."""
    try:
        values = json.loads(file.read_bytes())
        at = Frame(*values["at"]) if values["at"] else None
        stack = tuple(Frame(*frame) for frame in values["stack"])
        handles, main = _handled(values.get("handles")), bool(values.get("main", True))
        counts = int(values.get("steps", 0)), float(values.get("waited", 0.0))
        return Heartbeat(values["t"], values["moved"], values["thread"], at, stack, main, handles, *counts)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _handled(values: dict[str, Any] | None) -> ActiveException | None:
    if values is None:
        return None
    frames = tuple(Frame(*frame) for frame in values["frames"])
    return ActiveException(
        values["type"], values["message"], frames, Frame(*values["tried"]), Frame(*values["holder"])
    )


def handled_by(records: Path | None, pid: int) -> ActiveException | None:
    """The exception that a process said last to be handling; None where our recorder is not in there."""
    files = records.glob(f"{pid}-*{NOW}") if records else ()
    beat = max(filter(None, map(read_heartbeat, files)), key=lambda beat: beat.time, default=None)
    return beat.handles if beat else None


def recorders_threads(records: Path | None) -> set[int]:
    """The threads of our recorder in all processes that it records."""
    files = records.glob(f"*{NOW}") if records else ()
    return {beat.thread for file in files if (beat := read_heartbeat(file))}


REQUEST = "asked"
"""The name that ``recorder/asked.py`` looks for."""
SECONDS = 1.0
"""For an answer: recorders look four times a second; one whose interpreter is held by another thread never does."""


@dataclass(frozen=True)
class Answer:
    """What the recorder of one process said."""

    pid: int
    stack: tuple[Frame, ...]
    """Of the main thread, outermost frame first."""
    flight: Path | None
    """The dump of its flight recorder."""


def ask(records: Path, pids: Iterable[int]) -> dict[int, Answer]:
    """The answers of these processes, of those that answer in time."""
    waiting, asked = set(pids), str(time.time_ns())
    try:
        write_whole(records / REQUEST, asked)
    except OSError:  # records of another user's job may be readable only
        return {}
    answers: dict[int, Answer] = {}
    deadline = time.monotonic() + SECONDS
    while waiting - answers.keys() and time.monotonic() < deadline:
        time.sleep(0.02)
        for pid in waiting - answers.keys():
            for file in records.glob(f"{pid}-*.stack.json"):
                if answer := _read(file, pid, asked):
                    answers[pid] = answer
    return answers


def _read(file: Path, pid: int, asked: str) -> Answer | None:
    """None where it answers an earlier question."""
    if not (values := read_json(file)) or values["asked"] != asked:
        return None
    flight = file.with_name(f"{file.name.removesuffix('.stack.json')}.flight") if values["flight"] else None
    return Answer(pid, tuple(Frame(*frame) for frame in values["frames"]), flight)
