"""A hang snapshot as a folder: written on each host, copied together, read wherever somebody has time to look.

Each host writes ``<host>-<pid>.snapshot.json`` and its dumps beside it, so that folders merge by copying. A folder
may come from anybody: everything in it is checked before it is believed, and bounded.
"""

import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ddpdoctor.blame.hang_snapshot import HangSnapshot, SampledProcess
from ddpdoctor.files import write_json
from ddpdoctor.hang.flight.folder import read_files
from ddpdoctor.hang.flight.unpickle import Refused
from ddpdoctor.recorder.events.decode import from_plain
from ddpdoctor.text import listing

SCHEMA = 1
ENDING = ".snapshot.json"
LARGEST = 64 << 20
"""Bytes of one file; a thousand processes with deep stacks have 20 MB."""
MOST_FILES = 10_000
MOST_PROCESSES = 100_000
MOST_FRAMES = 5_000
RECORDS = "record"
"""The folder, inside a kept one, of what our recorder wrote."""
_LONGEST = 4_000
"""Characters of one text."""
_OF_A_NAME = re.compile(r"[^\w.-]")
_LARGEST_NUMBER = 1e12


@dataclass(frozen=True)
class StoredSnapshot:
    """What the file of one host says."""

    schema: int
    seconds: float
    world_size: int | None
    timeout: float | None
    unseen: tuple[str, ...]
    flight: Mapping[str, str]
    """The names of dumps beside it, by rank."""
    processes: tuple[SampledProcess, ...]


def write(snapshot: HangSnapshot, folder: Path, records: Path | None = None) -> None:
    """Write it, with a copy of what our recorder wrote of its processes, into a folder that may hold other hosts'."""
    folder.mkdir(parents=True, exist_ok=True)
    first = min(snapshot.processes, key=lambda it: it.pid, default=SampledProcess(os.getpid(), None))
    name = f"{_OF_A_NAME.sub('_', first.host) or 'host'}-{first.pid}"
    flight = {}
    for rank, dump in snapshot.flight.items():
        flight[str(rank)] = f"{name}_rank_{rank}"
        shutil.copyfile(dump.file, folder / flight[str(rank)])
    own = snapshot.seconds, snapshot.world_size, snapshot.timeout, snapshot.unseen
    kept = StoredSnapshot(SCHEMA, *own, flight, snapshot.processes)
    write_json(folder / f"{name}{ENDING}", asdict(kept))
    if records is not None:
        (folder / RECORDS).mkdir(exist_ok=True)
        for file in records.glob("*.jsonl"):
            shutil.copyfile(file, folder / RECORDS / file.name)


def move_into(staging: Path, folder: Path) -> None:
    """Move what was written in one folder into another, which may hold that of other hosts; the first goes away."""
    for file in [path for path in staging.rglob("*") if path.is_file()]:
        target = folder / file.relative_to(staging)
        target.parent.mkdir(parents=True, exist_ok=True)
        file.replace(target)
    shutil.rmtree(staging)


def is_kept(folder: Path) -> bool:
    """Whether a hang snapshot lies in a folder, or in folders right below it."""
    return next(iter(_files(folder)), None) is not None


def read(*folders: Path) -> HangSnapshot:
    """What all hosts wrote into some folders, or into folders right below them, as one. Raises Refused where there is
    none, or one is not what :func:`write` writes."""
    if not (files := sorted(file for folder in folders for file in _files(folder))):
        raise Refused(f"no file ends with {ENDING}, as those of ddpdoctor hang --dump do")
    if len(files) > MOST_FILES:
        raise Refused(f"there are {len(files)} files; at most {MOST_FILES} are read")
    return merge([_read(file) for file in files])


def _files(folder: Path) -> Iterable[Path]:
    for pattern in (f"*{ENDING}", f"*/*{ENDING}"):
        # Neither a pipe, which would never end, nor a way out of the folder.
        yield from (file for file in folder.glob(pattern) if file.is_file() and not file.is_symlink())


def merge(parts: Sequence[HangSnapshot]) -> HangSnapshot:
    """What was seen on several hosts as one."""
    processes = {(process.host, process.pid): process for part in parts for process in part.processes}
    return HangSnapshot(
        tuple(processes.values()),
        max(part.seconds for part in parts),
        max((part.world_size for part in parts if part.world_size), default=None),
        max((part.timeout for part in parts if part.timeout), default=None),
        {rank: dump for part in parts for rank, dump in part.flight.items()},
        tuple(dict.fromkeys(text for part in parts for text in part.unseen)),
    )


def _read(file: Path) -> HangSnapshot:
    try:
        kept = _content(file)
        here = {_beside(file, name): int(rank) for rank, name in kept.flight.items()}
    except (ValueError, RecursionError, OverflowError) as wrong:
        raise Refused(f"{file.name} is not what ddpdoctor writes: {wrong}") from None
    except OSError as failed:
        raise Refused(f"{file.name} cannot be read: {failed.strerror}") from None
    there = {path: rank for path, rank in here.items() if path.is_file() and not path.is_symlink()}
    dumps = read_files(there)
    refused = [f"{path.name}: {why}" for path, why in dumps.refused.items()]
    refused += [f"{path.name} is not there" for path in here if path not in there]
    unseen = kept.unseen
    if refused:
        unseen += (f"flight recorders that cannot be read: {listing(refused)}",)
    return HangSnapshot(kept.processes, kept.seconds, kept.world_size, kept.timeout, dumps.ranks, unseen)


def _content(file: Path) -> StoredSnapshot:
    size = file.stat().st_size
    if size > LARGEST:
        raise Refused(f"it has {size >> 20} MiB; at most {LARGEST >> 20} MiB are read")
    plain = json.loads(file.read_bytes())
    if not isinstance(plain, dict):
        raise ValueError("it is no JSON object")
    if plain.get("schema") != SCHEMA:
        raise Refused(f"its schema is {plain.get('schema')!r:.20}, and this version reads {SCHEMA}")
    missing = [field.name for field in fields(StoredSnapshot) if field.name not in plain]
    if missing:
        raise ValueError(f"it has no {missing[0]}")
    return from_plain(StoredSnapshot, _bounded(plain))


def _bounded(value: Any, name: str = "") -> Any:
    """A value of JSON whose texts are cut to a length; a field may have negative numbers where it is a status."""
    if isinstance(value, dict):
        return {key: _bounded(field, key) for key, field in value.items()}
    if isinstance(value, list):
        most = MOST_PROCESSES if name == "processes" else MOST_FRAMES
        if len(value) > most:
            raise ValueError(f"a list has {len(value)} values, and {most} are the most")
        return [_bounded(item, name) for item in value]
    least = -1000 if name == "exit_status" else 0
    # Not a number is refused, too.
    if isinstance(value, (int, float)) and not least <= value < _LARGEST_NUMBER:
        raise ValueError(f"the number of {name} is out of range")
    return value[:_LONGEST] if isinstance(value, str) else value


def _beside(file: Path, name: str) -> Path:
    """A file in the same folder, and no way out of it."""
    if Path(name).name != name or name in (".", "..") or "\0" in name:
        raise ValueError("a dump's name leads out of the folder")
    return file.with_name(name)
