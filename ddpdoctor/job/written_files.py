"""What a job wrote in its private view, which is told and then removed."""

from __future__ import annotations

import json
import os
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ddpdoctor.files import read_json, write_json
from ddpdoctor.job.guard import remove_all
from ddpdoctor.job.journal import UNDONE, play_back
from ddpdoctor.job.private_view import INVENTORY, ORIGINALS, VIEW, inventory, status
from ddpdoctor.recorder.events.decode import from_plain
from ddpdoctor.trace.written import WouldWrite, WrittenFile

LAYERS = "layers"
"""The folder, inside the job's, of what it wrote."""
VIEW_PROGRAM = Path(__file__).with_name("private_view.py")
_WRITTEN = "written.json"
_MOST = 100_000
"""Files that are looked at."""
_OF_PYTHON = "__pycache__"


def undo(folder: Path, working: Path) -> None:
    """Note what the job in this folder would have written, and remove that; once, after the job's end.

    Args:
        working: the job's working directory. Elsewhere, temporary files are not told.
    """
    layers = folder / LAYERS
    if not layers.is_dir():
        return
    view = read_json(layers / VIEW) or {"why_not": "the launcher did not start"}
    temporary = Path(tempfile.gettempdir()).resolve()
    journal = folder / ORIGINALS
    if journal.is_dir():
        play_back(journal)  # where the guard was killed
    undone: list[dict[str, Any]] = read_json(layers / UNDONE) or []
    changes = [*_changes(layers, view.get("covered", {})), *_of_journal(undone)]
    files = [
        file
        for file in changes
        if Path(file.path).is_relative_to(working) or not Path(file.path).is_relative_to(temporary)
    ]
    written = WouldWrite(
        tuple(files),
        view.get("why_not"),
        tuple(view.get("uncovered", ())),
        tuple(sorted({entry["host"] for entry in undone if entry["kind"] == "outside"})),
        tuple(_left(read_json(layers / INVENTORY) or {}, working)),
        tuple(sorted({f"{entry['path']} ({entry['failed']})" for entry in undone if "failed" in entry})),
    )
    remove_all(layers)
    write_json(folder / _WRITTEN, asdict(written))


def _left(before: dict[str, list[int]], working: Path) -> Iterator[str]:
    """What is not as it was in the working directory, since nobody heard of the change: where that was noted at all."""
    now = inventory(working) if before else {}
    for path in sorted({*before, *now} if now else ()):
        if list(now.get(path, ())) != list(before.get(path, ())):
            yield path


def read_written(folder: Path) -> WouldWrite | None:
    """What that was; None where the job's files were its own matter."""
    values = read_json(folder / _WRITTEN)
    return from_plain(WouldWrite, values) if values else None


def _of_journal(undone: Sequence[dict[str, Any]]) -> Iterator[WrittenFile]:
    """What was undone by the journal: each path once, whose first entry tells what was there before."""
    for entry in sorted(undone, key=lambda entry: str(entry["path"])):
        there, existed = "size" in entry, entry["kind"] in ("file", "copy", "link")
        is_other = "failed" in entry or entry.get("is_folder") or _OF_PYTHON in entry["path"]
        if is_other or not (there or existed):
            continue
        yield WrittenFile(entry["path"], entry.get("size", 0), existed, removed=not there)


def _changes(layers: Path, covered: dict[str, str]) -> list[WrittenFile]:
    found: list[WrittenFile] = []
    for folder, name in covered.items():
        for place in _below(layers / "upper" / name):
            if len(found) >= _MOST:
                break
            real = Path(folder) / place.relative_to(layers / "upper" / name)
            if (file := _change(place, real)) is not None:
                found.append(file)
    return found


def _below(folder: Path) -> Iterator[Path]:
    """Every file in a layer, and every folder without one."""
    for place, folders, files in os.walk(folder, onerror=None):
        folders[:] = sorted(name for name in folders if name != _OF_PYTHON)
        yield from (Path(place, name) for name in sorted(files))
        yield from (Path(place, name) for name in folders if os.path.islink(Path(place, name)))  # noqa: PTH114
        if not folders and not files and place != str(folder):
            yield Path(place)


def _change(place: Path, real: Path) -> WrittenFile | None:
    """What became of a file, or of a folder without files; None where that is nothing."""
    new, old = status(place), status(real)
    if new is None:
        return None
    if stat.S_ISCHR(new.st_mode) and new.st_rdev == 0:  # how an overlay hides what lies below
        return WrittenFile(str(real), 0, existed=True, removed=True)
    if stat.S_ISDIR(new.st_mode):
        return None if old else WrittenFile(f"{real}{os.sep}", 0)
    if old and _same(new, old):
        return None
    return WrittenFile(str(real), new.st_size, existed=old is not None)


def _same(new: os.stat_result, old: os.stat_result) -> bool:
    return (new.st_size, new.st_mtime_ns, new.st_mode) == (old.st_size, old.st_mtime_ns, old.st_mode)


def view_command(command: Sequence[str], folder: Path, script: str | None, why_not: str | None) -> list[str]:
    """The command line that runs another in a private view, but for its folder.

    Args:
        script: the file that is run, where it is known.
        why_not: why it is to run without a view, with its files kept by the recorder, where that is so.
    """
    options = {
        "layers": str(folder / LAYERS),
        "visible": [str(folder)],
        "script": str(Path(script).absolute()) if script else None,
        "without": why_not,
    }
    return [sys.executable, "-I", "-S", str(VIEW_PROGRAM), json.dumps(options), *command]
