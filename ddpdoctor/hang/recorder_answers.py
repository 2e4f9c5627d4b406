"""Asks the recorders of a running job where they are, and reads what they answer."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ddpdoctor.blame.frames import Frame
from ddpdoctor.files import read_json, write_whole

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
                answer = _read(file, pid, asked)
                if answer:
                    answers[pid] = answer
    return answers


def _read(file: Path, pid: int, asked: str) -> Answer | None:
    """None where it answers an earlier question."""
    values = read_json(file)
    if not values or values["asked"] != asked:
        return None
    flight = file.with_name(f"{file.name.removesuffix('.stack.json')}.flight") if values["flight"] else None
    return Answer(pid, tuple(Frame(*frame) for frame in values["frames"]), flight)
