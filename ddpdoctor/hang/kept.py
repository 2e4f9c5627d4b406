"""A standstill as a folder: written on each host, copied together, read wherever somebody has time to look.

Each host writes ``<host>-<pid>.standstill.json`` and its dumps beside it, so that folders merge by copying. A folder
may come from anybody: everything in it is checked before it is believed, and bounded.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from ddpdoctor.blame.frames import Frame
from ddpdoctor.blame.standstill import Doing, Handled, Process, Role, Standstill
from ddpdoctor.files import write_json
from ddpdoctor.hang.flight.folder import read_files
from ddpdoctor.hang.flight.unpickle import Refused
from ddpdoctor.text import listing

SCHEMA = 1
ENDING = ".standstill.json"
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
_Value = TypeVar("_Value")


def write(standstill: Standstill, folder: Path, records: Path | None = None) -> None:
    """Write it into a folder, which may hold those of other hosts.

    Args:
        records: what our recorder wrote of its processes is copied from there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    first = min(standstill.processes, key=lambda one: one.pid, default=Process(os.getpid(), None))
    name = f"{_OF_A_NAME.sub('_', first.host) or 'host'}-{first.pid}"
    flight = {}
    for rank, dump in standstill.flight.items():
        flight[rank] = f"{name}_rank_{rank}"
        shutil.copyfile(dump.file, folder / flight[rank])
    said = {
        "schema": SCHEMA,
        "seconds": standstill.seconds,
        "world_size": standstill.world_size,
        "timeout": standstill.timeout,
        "unseen": standstill.unseen,
        "flight": flight,
        "processes": [asdict(one) for one in standstill.processes],
    }
    file = folder / f"{name}{ENDING}"
    write_json(file, said)
    if records is not None:
        _copy_records(records, folder / RECORDS)


def _copy_records(records: Path, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for file in records.glob("*.jsonl"):
        shutil.copyfile(file, folder / file.name)


def move_into(staging: Path, folder: Path) -> None:
    """Move what was written in one folder into another, which may hold that of other hosts; the first goes away."""
    for file in [one for one in staging.rglob("*") if one.is_file()]:
        target = folder / file.relative_to(staging)
        target.parent.mkdir(parents=True, exist_ok=True)
        file.replace(target)
    shutil.rmtree(staging)


def is_kept(folder: Path) -> bool:
    """Whether a standstill lies in a folder, or in folders right below it."""
    return next(iter(_files(folder)), None) is not None


def read(*folders: Path) -> Standstill:
    """What all hosts wrote into some folders, or into folders right below them, as one.

    Raises:
        Refused: there is none, or one is not what :func:`write` writes.
    """
    files = sorted(file for folder in folders for file in _files(folder))
    if not files:
        raise Refused(f"no file ends with {ENDING}, as those of ddpdoctor hang --dump do")
    if len(files) > MOST_FILES:
        raise Refused(f"there are {len(files)} files, and {MOST_FILES} are the most")
    return _merge([_read(file) for file in files])


def _files(folder: Path) -> Iterable[Path]:
    for pattern in (f"*{ENDING}", f"*/*{ENDING}"):
        # Neither a pipe, which would never end, nor a way out of the folder.
        yield from (one for one in folder.glob(pattern) if one.is_file() and not one.is_symlink())


def _merge(parts: list[Standstill]) -> Standstill:
    processes = {(one.host, one.pid): one for part in parts for one in part.processes}
    return Standstill(
        tuple(processes.values()),
        max(part.seconds for part in parts),
        max((part.world_size for part in parts if part.world_size), default=None),
        max((part.timeout for part in parts if part.timeout), default=None),
        {rank: dump for part in parts for rank, dump in part.flight.items()},
        tuple(dict.fromkeys(text for part in parts for text in part.unseen)),
    )


def _read(file: Path) -> Standstill:
    try:
        standstill, flight = _standstill(_content(file))
    except (KeyError, TypeError, ValueError, RecursionError, OverflowError) as wrong:
        why = str(wrong) if isinstance(wrong, Refused) else f"{type(wrong).__name__}: {wrong}"
        raise Refused(f"{file.name} is not what ddpdoctor writes: {why}") from None
    except OSError as failed:
        raise Refused(f"{file.name} cannot be read: {failed.strerror}") from None
    here = {file.with_name(name): rank for rank, name in flight.items()}
    there = {path: rank for path, rank in here.items() if path.is_file() and not path.is_symlink()}
    dumps = read_files(there)
    refused = [f"{path.name}: {why}" for path, why in dumps.refused.items()]
    refused += [f"{path.name} is not there" for path in here if path not in there]
    if refused:
        unseen = (*standstill.unseen, f"flight recorders that cannot be read: {listing(refused)}")
        standstill = replace(standstill, unseen=unseen)
    return replace(standstill, flight=dumps.ranks)


def _content(file: Path) -> dict[str, Any]:
    size = file.stat().st_size
    if size > LARGEST:
        raise Refused(f"it has {size >> 20} MiB, and {LARGEST >> 20} are the most")
    said = _a(json.loads(file.read_bytes()), dict)
    if said["schema"] != SCHEMA:
        raise Refused(f"its schema is {said['schema']!r:.20}, and this version reads {SCHEMA}")
    return said


def _standstill(said: Mapping[str, Any]) -> tuple[Standstill, dict[int, str]]:
    flight = {int(rank): _file_name(name) for rank, name in _a(said["flight"], dict).items()}
    standstill = Standstill(
        tuple(_process(_a(one, dict)) for one in _list(said["processes"], MOST_PROCESSES)),
        _number(said["seconds"]),
        _or_none(said["world_size"], _whole),
        _or_none(said["timeout"], _number),
        unseen=_texts(said["unseen"]),
    )
    return standstill, flight


def _process(said: Mapping[str, Any]) -> Process:
    said = {"handles": None, **said}  # older versions did not look
    return Process(**{one.name: _FIELDS[one.name](said[one.name]) for one in fields(Process)})


def _a(value: Any, kind: type[_Value]) -> _Value:
    if type(value) is not kind:
        raise TypeError(f"{kind.__name__} expected, and there is {type(value).__name__}")
    return value


def _whole(value: Any) -> int:
    number = _a(value, int)
    if not 0 <= number < 1 << 40:
        raise ValueError(f"a number is {number:.3g}" if abs(number) < 1 << 99 else "a number is out of range")
    return number


def _number(value: Any) -> float:
    number = float(value) if type(value) in (int, float) else _a(value, float)
    if not 0 <= number < 1e12:  # not a number is refused, too
        raise ValueError("a number is out of range")
    return number


def _status(value: Any) -> int:
    if not -1000 < _a(value, int) < 1000:
        raise ValueError("an exit status is out of range")
    return int(value)


def _or_none(value: Any, read: Callable[[Any], _Value]) -> _Value | None:
    return None if value is None else read(value)


def _text(value: Any) -> str:
    return _a(value, str)[:_LONGEST]


def _list(value: Any, most: int) -> list[Any]:
    found = _a(value, list)
    if len(found) > most:
        raise ValueError(f"a list has {len(found)} values, and {most} are the most")
    return found


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(_text(one) for one in _list(value, MOST_FRAMES))


def _frames(value: Any) -> tuple[Frame, ...]:
    return tuple(_frame(one) for one in _list(value, MOST_FRAMES))


def _frame(value: Any) -> Frame:
    one = _a(value, dict)
    return Frame(_text(one["function"]), _text(one["file"]), _whole(one["line"]))


def _handled(value: Any) -> Handled:
    one = _a(value, dict)
    frames = _frames(one["frames"])
    return Handled(
        _text(one["type"]), _text(one["message"]), frames, _frame(one["tried"]), _frame(one["holder"])
    )


def _file_name(value: Any) -> str:
    """The name of a file in the same folder, and no way out of it."""
    name = _text(value)
    if Path(name).name != name or name in (".", "..") or "\0" in name:
        raise ValueError("a dump's name leads out of the folder")
    return name


_FIELDS: Mapping[str, Callable[[Any], Any]] = {
    "pid": _whole,
    "rank": lambda value: _or_none(value, _whole),
    "role": Role,
    "host": _text,
    "command": _text,
    "doing": Doing,
    "call": _text,
    "stack": _frames,
    "again": _frames,
    "native": _texts,
    "wakes": _number,
    "changes": lambda value: _a(value, bool),
    "from_interpreter": lambda value: _a(value, bool),
    "unseen": _text,
    "exit_status": lambda value: _or_none(value, _status),
    "handles": lambda value: _or_none(value, _handled),
}
"""How each field of a process is read; a test holds them against the class."""
