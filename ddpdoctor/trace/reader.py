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
from ddpdoctor.trace.derive import derive
from ddpdoctor.trace.exact import ExactReader
from ddpdoctor.trace.hooked import HookedReader
from ddpdoctor.trace.read_data import DataReader
from ddpdoctor.trace.read_files import FilesReader
from ddpdoctor.trace.read_process import ProcessReader
from ddpdoctor.trace.read_training import TrainingReader
from ddpdoctor.trace.recording import Recording

SCHEMA = 1
_LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch", "torchrun", "accelerate")


class AreaReader(Protocol):
    """Reads the events of one area by methods ``on_<kind>(event, at)``, dots in the kind being underscores."""

    def fields(self) -> dict[str, Any]:
        """Fields of the Recording, once all events were read."""


AREAS: tuple[Callable[[Path], AreaReader], ...] = (
    ProcessReader,
    DataReader,
    FilesReader,
    TrainingReader,
    ExactReader,
    HookedReader,
)
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
    records = [record for file in sorted(folder.glob("*.jsonl")) if (record := _Record.of(file))]
    own = {record.pid: record for record in records}
    for record in records:
        parent = own.get(record.parent)
        if parent is None or parent is record or record.joined:
            continue
        if (
            parent.given_rank == record.given_rank
        ):  # a worker inherits it; a rank's is not that of its launcher
            parent.children.append(record)
            own.pop(record.pid)
    return _sort([record.recording(until) for record in own.values()])


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
class _Record:
    """One file."""

    file: Path
    pid: int
    parent: int
    joined: bool
    given_rank: str | None
    """RANK in its environment."""
    children: list[_Record] = field(default_factory=list)

    @classmethod
    def of(cls, file: Path) -> _Record | None:
        """Look at a file's first events; None where it is no record that this version can read."""
        header = next(_events(file), None)
        if header is None or header.get("k") != "start" or header.get("schema") != SCHEMA:
            return None
        joined = any(event.get("k") == "group.joining" for event in _events(file))
        return cls(file, int(header["pid"]), int(header["parent"]), joined, header["environ"].get("RANK"))

    def recording(self, until: float) -> Recording:
        """Read it from its beginning to its end, and then what its forked children saw as its workers."""
        readers = [area(self.file) for area in AREAS]
        last = _feed(self.file, readers, until)
        for child in self.children:
            _feed(child.file, readers, until, only="worker")
        fields = {name: value for reader in readers for name, value in reader.fields().items()}
        return derive(replace(Recording(), **fields, last=last))


def _feed(file: Path, readers: list[AreaReader], until: float, only: str = "") -> float:
    """Hand every event to the readers that know its kind; the time of the last one."""
    sites: dict[int, Where] = {}
    last = 0.0
    for event in _events(file):
        if event.get("t", 0.0) > until:
            continue
        kind = str(event.get("k", ""))
        if kind == "site":
            sites[event["id"]] = Where(short_path(event["file"]), event["line"], event["function"])
        elif kind.startswith(only):
            method = f"on_{kind.replace('.', '_')}"
            for reader in readers:
                if handler := getattr(reader, method, None):
                    handler(event, sites.get(event.get("at", -1)))
        last = max(last, event.get("t", 0.0))
    return last


def _events(file: Path) -> Iterator[dict[str, Any]]:
    """The events of a file; a last line that its writer did not finish ends it."""
    with file.open("rb") as opened:
        for line in opened:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                yield event
