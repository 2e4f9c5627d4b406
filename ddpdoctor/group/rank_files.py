"""The files through which the group's ranks speak to the command. Standard library only.

In the run folder: ``launch.json`` (what to run), ``ready`` (torch is imported), ``go.json`` (start, on this port),
``rank<R>.jsonl`` (one event a line, flushed), ``engine.json`` (how it ended), ``engine.log`` (what torch wrote),
``stack<R>.txt`` (the interpreter's own stacks).
"""

import json
import os
from pathlib import Path
from typing import Any

LAUNCH = "launch.json"
READY = "ready"
GO = "go.json"
ENDED = "engine.json"
EVERYTHING = "everything.json"
"""Where there are several hosts: the values of all ranks, by rank."""


def rank_file(folder: Path, rank: int) -> Path:
    """Where a rank writes its events."""
    return folder / f"rank{rank}.jsonl"


def stack_file(folder: Path, rank: int) -> Path:
    """Where a rank's interpreter writes its stack on SIGUSR2."""
    return folder / f"stack{rank}.txt"


def checkpoint_folder(folder: Path, checkpoint_dir: str) -> Path:
    """The private folder of the run in ``folder``, beside the user's checkpoints; who outlives rank 0 removes it."""
    return Path(checkpoint_dir) / f".{folder.parent.name}-{folder.name}.checkpoint"


class EventWriter:
    """Appends one rank's events. A line reaches the file at once, so it survives SIGKILL."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(self, event: str, **fields: Any) -> None:
        os.write(self._file, (json.dumps({"event": event, **fields}) + "\n").encode())
