"""Reads the folder into which the processes of a run recorded themselves."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from ddpdoctor.blame.frames import short_path
from ddpdoctor.model import Where
from ddpdoctor.recorder.events.process import GroupEvent, Start
from ddpdoctor.recorder.events.schema import SCHEMA
from ddpdoctor.trace.derive import derive
from ddpdoctor.trace.read_data import DataReader
from ddpdoctor.trace.record import Record, lines_of
from ddpdoctor.trace.recording import Recording, recording_of

_LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch", "torchrun", "accelerate")


class AreaReader(Protocol):
    """Reads the events of one area by methods ``on_<kind>(event, at)``, dots in the kind being underscores."""

    def fields(self) -> dict[str, Any]:
        """Fields of the Recording, once all events were read."""


AREAS: tuple[Callable[[Path], AreaReader], ...] = (DataReader,)
"""One reader each for a process, in the order in which they are asked; made with the path of the record."""


@dataclass(frozen=True)
class Recorded:
    """All processes that recorded themselves."""

    ranks: Mapping[int, Recording] = field(default_factory=dict)
    others: tuple[Recording, ...] = ()
    """Those that joined no process group and were given no rank; a launcher is not among them."""


def read_run(folder: Path, until: float = math.inf) -> Recorded:
    """Read every record in a folder; what is cut short or not ours is left out.

    Args:
        until: on the clock of the records; what was written later is left out too.
    """
    read = (_Process.of(file, until) for file in sorted(folder.glob("*.jsonl")))
    processes = [process for process in read if process]
    own = {process.start.pid: process for process in processes}
    for process in processes:
        parent = own.get(process.start.parent)
        if parent is None or parent is process or process.record.events(GroupEvent):
            continue
        if (
            parent.given_rank == process.given_rank
        ):  # a worker inherits it; a rank's is not that of its launcher
            parent.children.append(process)
            own.pop(process.start.pid)
    return _sort([process.recording() for process in own.values()])


def _sort(recordings: list[Recording]) -> Recorded:
    ranks: dict[int, Recording] = {}
    # After a restart the last counts; where several took one rank, it is those that were given another that went wrong.
    for recording in sorted(recordings, key=lambda one: (_took_another(one), one.started)):
        if recording.rank is not None and (recording.groups or recording.rank not in ranks):
            ranks[recording.rank] = recording
    rest = [one for one in recordings if one.rank is None and not one.script.endswith(_LAUNCHERS)]
    return Recorded(dict(sorted(ranks.items())), tuple(rest))


def _took_another(recording: Recording) -> bool:
    """Whether it joined with another rank than its launcher gave it."""
    return bool(recording.groups) and recording.environ.get("RANK", str(recording.rank)) != str(
        recording.rank
    )


@dataclass
class _Process:
    """One file."""

    file: Path
    record: Record
    start: Start
    children: list[_Process] = field(default_factory=list)

    @classmethod
    def of(cls, file: Path, until: float) -> _Process | None:
        """Read a file; None where it is no record that this version can read."""
        record = Record(lines_of(file), until)
        start = next(iter(record.events(Start)), None)
        return cls(file, record, start) if start is not None and start.schema == SCHEMA else None

    @property
    def given_rank(self) -> str | None:
        """RANK in its environment."""
        return self.start.environ.get("RANK")

    def recording(self) -> Recording:
        """It as checks read it, with what its forked children saw as its workers."""
        readers = [area(self.file) for area in AREAS]
        _feed(self.file, readers, self.record.last)
        for child in self.children:
            _feed(child.file, readers, child.record.last, only="worker")
        fields = {name: value for reader in readers for name, value in reader.fields().items()}
        return derive(replace(recording_of(self.record), **fields))


def _feed(file: Path, readers: list[AreaReader], until: float, only: str = "") -> float:
    """Hand every event to the readers that know its kind; the time of the last one."""
    sites: dict[int, Where] = {}
    last = 0.0
    for event in _events(file):
        if event.get("t", 0.0) > until:
            continue
        kind = str(event.get("k", ""))
        if kind == "Site":
            sites[event["number"]] = Where(short_path(event["file"]), event["line"], event["function"])
        elif kind.startswith(only):
            method = f"on_{kind.replace('.', '_')}"
            for reader in readers:
                if handler := getattr(reader, method, None):
                    handler(event, sites.get(event.get("at", -1)))
        last = max(last, event.get("t", 0.0))
    return last


def _events(file: Path) -> Iterator[dict[str, Any]]:
    """The events of a file."""
    for line in lines_of(file):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            yield event
