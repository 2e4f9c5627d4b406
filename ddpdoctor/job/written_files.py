"""What a job wrote in its private view, which is told and then removed."""

import contextlib
import itertools
import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ddpdoctor.files import read_json, write_json
from ddpdoctor.job.guard import remove_all
from ddpdoctor.job.journal import UNDONE, Downloads, play_back
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
    """Note what the job in this folder would have written, and remove that; once, after the job's end. Outside its
    working directory, temporary files are not told."""
    layers = folder / LAYERS
    if not layers.is_dir():
        return
    view = read_json(layers / VIEW) or {"why_not": "the launcher did not start"}
    temporary = Path(tempfile.gettempdir()).resolve()
    journal = folder / ORIGINALS
    if journal.is_dir():
        play_back(journal)  # where the guard was killed
    undone: list[dict[str, Any]] = read_json(layers / UNDONE) or []
    changes = itertools.islice(_changes(layers, view.get("covered", {})), _MOST)
    in_layers = {place: file for place, file in changes if _is_told(file, working, temporary)}
    in_place = (file for file in _of_journal(undone) if _is_told(file, working, temporary))
    files = (*_move_downloads(journal, in_layers), *in_place)
    written = WouldWrite(
        files,
        view.get("why_not"),
        tuple(view.get("uncovered", ())),
        tuple(sorted({entry["host"] for entry in undone if entry["kind"] == "outside"})),
        tuple(_left(read_json(layers / INVENTORY) or {}, working, files)),
        tuple(sorted({f"{entry['path']} ({entry['failed']})" for entry in undone if "failed" in entry})),
    )
    remove_all(layers)
    write_json(folder / _WRITTEN, asdict(written))


def _is_told(file: WrittenFile, working: Path, temporary: Path) -> bool:
    path = Path(file.path)
    return path.is_relative_to(working) or not path.is_relative_to(temporary)


def _move_downloads(journal: Path, files: Mapping[Path, WrittenFile]) -> Iterator[WrittenFile]:
    """Move what was downloaded out of the layers; all files, of which those are marked."""
    new = {Path(file.path): place for place, file in files.items() if not file.existed and place.is_file()}
    moved = {path for path in Downloads(journal).among(new) if _move(new[path], path)}
    for file in files.values():
        yield replace(file, downloaded=Path(file.path) in moved)


def _move(place: Path, path: Path) -> bool:
    """Move a file out of a layer, with the folders in which it stands; whether that went well."""
    draft = path.with_name(".ddpdoctor-download")
    try:
        _make_like(place.parent, path.parent)
        shutil.move(place, draft)
        draft.rename(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        return False
    return True


def _make_like(layer: Path, folder: Path) -> None:
    if not folder.is_dir():
        _make_like(layer.parent, folder.parent)
        folder.mkdir()
        shutil.copystat(layer, folder)
        os.chown(folder, layer.stat().st_uid, layer.stat().st_gid)


def _left(before: dict[str, list[int]], working: Path, files: Sequence[WrittenFile]) -> Iterator[str]:
    """What is not as it was in the working directory, since nobody heard of the change: where that was noted at all."""
    now = inventory(working) if before else {}
    downloads = {Path(file.path) for file in files if file.downloaded}
    stays = {str(place) for path in downloads for place in (path, *path.parents)}
    for path in sorted({*before, *now} - stays if now else ()):
        if list(now.get(path, ())) != list(before.get(path, ())):
            yield path


def read_written(folder: Path) -> WouldWrite | None:
    """What that was; None where the job's files were its own matter."""
    values = read_json(folder / _WRITTEN)
    return from_plain(WouldWrite, values) if values else None


def _of_journal(undone: Sequence[dict[str, Any]]) -> Iterator[WrittenFile]:
    """What was undone by the journal: each path once, whose first entry tells what was there before."""
    for entry in sorted(undone, key=lambda entry: str(entry["path"])):
        there, existed = "size" in entry, entry["kind"] in ("file", "copy", "link", "name")
        is_other = "failed" in entry or entry.get("is_folder") or _OF_PYTHON in entry["path"]
        if is_other or not (there or existed):
            continue
        yield WrittenFile(entry["path"], entry.get("size", 0), existed, not there, "downloaded" in entry)


def _changes(layers: Path, covered: dict[str, str]) -> Iterator[tuple[Path, WrittenFile]]:
    """The files in the layers, and what became of each."""
    for folder, name in covered.items():
        for place in _below(layers / "upper" / name):
            real = Path(folder) / place.relative_to(layers / "upper" / name)
            if (file := _change(place, real)) is not None:
                yield place, file


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
    if old and (new.st_size, new.st_mtime_ns, new.st_mode) == (old.st_size, old.st_mtime_ns, old.st_mode):
        return None
    return WrittenFile(str(real), new.st_size, existed=old is not None)


def view_command(command: Sequence[str], folder: Path, script: str | None, why_not: str | None) -> list[str]:
    """The command line that runs another in a private view, but for its folder; or, where ``why_not`` says why, without
    a view, with its files kept by the recorder. The script is the file that is run, where it is known."""
    options = {
        "layers": str(folder / LAYERS),
        "visible": [str(folder)],
        "script": str(Path(script).absolute()) if script else None,
        "without": why_not,
    }
    return [sys.executable, "-I", "-S", str(VIEW_PROGRAM), json.dumps(options), *command]
