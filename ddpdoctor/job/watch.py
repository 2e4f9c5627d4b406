"""Follows the records of a job while it runs: which ranks there are, which have ended, which have failed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_KINDS = ("start", "group.joining", "group.init", "raised", "exit")
_BEGINNINGS = tuple(f'{{"k":"{kind}"'.encode() for kind in _KINDS)
"""How the lines of interest begin, so that the others need not be read."""


@dataclass
class Process:
    """One recorded process of the job."""

    pid: int
    parent: int
    began: float
    given_rank: int | None
    """RANK in its environment when it started."""
    rank: int | None
    local_world_size: int | None
    joined: bool = False
    ended: bool = False
    failed: bool = False


class Watch:
    """The processes that recorded themselves so far."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[Path, int] = {}
        self._processes: dict[Path, Process] = {}

    def look(self) -> None:
        """Read what is new."""
        for file in self._folder.glob("*.jsonl"):
            for event in self._new_events(file):
                self._take(file, event)

    def _new_events(self, file: Path) -> Iterator[dict[str, Any]]:
        offset = self._offsets.get(file, 0)
        with file.open("rb") as opened:
            opened.seek(offset)
            complete, newline, _ = opened.read().rpartition(b"\n")
        self._offsets[file] = offset + len(complete) + len(newline)
        for line in complete.split(b"\n"):
            if line.startswith(_BEGINNINGS):
                yield json.loads(line)

    def _take(self, file: Path, event: Mapping[str, Any]) -> None:
        if event["k"] == "start":
            environ = event["environ"]
            rank, size = (_number(environ.get(name)) for name in ("RANK", "LOCAL_WORLD_SIZE"))
            self._processes[file] = Process(event["pid"], event["parent"], event["t"], rank, rank, size)
            return
        process = self._processes.get(file)
        if process is None:
            return
        match event["k"]:
            case "group.joining":
                process.joined = True
                process.rank = _number(event["arguments"].get("rank"), process.rank)
            case "group.init":
                process.rank = event["rank"]
                process.local_world_size = process.local_world_size or event["size"]
            case "raised":
                process.failed = True
            case "exit":
                process.ended, process.failed = True, process.failed or bool(event["status"])

    def ranks(self) -> dict[int, Process]:
        """The process of each rank; after a restart, the last."""
        given = {process.pid: process.given_rank for process in self._processes.values()}
        found: dict[int, Process] = {}
        for process in sorted(self._processes.values(), key=lambda one: one.began):
            # A DataLoader worker inherits its rank's environment, and is no rank; a rank has not its launcher's.
            is_worker = not process.joined and given.get(process.parent, -1) == process.given_rank
            if process.rank is not None and not is_worker:
                found[process.rank] = process
        return found

    def all_ended(self, nproc: int | None) -> bool:
        """Whether every rank has reached the end of its script.

        Args:
            nproc: ranks on this host; None where only they themselves know.
        """
        ranks = list(self.ranks().values())
        expected = nproc or max((one.local_world_size or 1 for one in ranks), default=1)
        return len(ranks) >= expected and all(one.ended for one in ranks)

    def somebody_failed(self) -> bool:
        """Whether the script of a rank has ended badly."""
        return any(one.failed for one in self.ranks().values())


def _number(text: object, default: int | None = None) -> int | None:
    return int(str(text)) if str(text).isdigit() else default
