"""Plays back the journal of :mod:`ddpdoctor.recorder.originals`: everything is as it was before the job.

Standard library only, and loaded by path, so that the guard can do it where the command was killed.
"""

import contextlib
import filecmp
import json
import mmap
import os
import runpy
import shutil
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from hashlib import sha1
from pathlib import Path
from typing import Any

_RECORDER = Path(__file__).parents[1] / "recorder"
UNDONE = "undone.json"
"""The file, beside the journal's folder, that tells what was undone."""
_CLOCK_STEP = 20_000_000
"""Nanoseconds by which the times of files may be behind the clock."""


def play_back(folder: Path) -> list[dict[str, Any]]:
    """Undo what the journal in a folder tells, the last first; return its entries, with the sizes that files had."""
    told = sorted(_entries(folder), key=lambda entry: entry["time"], reverse=True)
    entries = [entry for entry in told if _is_here(entry, folder)]
    stay = _downloaded(folder, entries)
    for entry in entries:
        _undo(entry, stay)
    for entry in entries:
        if entry["kind"] == "store":
            shutil.rmtree(entry["path"], ignore_errors=True)
    for entry in entries:
        if entry["kind"] in ("times", "folder"):
            _times(Path(entry["path"]), entry)
    if told:
        _write(folder.with_name(UNDONE), told)
    for place in folder.glob("*.json"):
        place.unlink()
    return told


def _is_here(entry: dict[str, Any], folder: Path) -> bool:
    """Whether a path means the same file here as on the host where it was changed, which sees the same journal."""
    if entry.get("host") in (None, os.uname().nodename):
        return True
    mount_of = runpy.run_path(str(_RECORDER / "originals.py"))["mount_of"]
    places, device = (str(folder), os.path.dirname(entry["path"])), folder.stat().st_dev  # noqa: PTH120
    is_here = {mount_of(place, device) for place in places} == {entry.get("mount")}
    if not is_here and entry["kind"] in {*_UNDO, "absent"} - {"times"}:
        entry["failed"] = f"on {entry['host']}"
    return is_here


def _downloaded(folder: Path, entries: Sequence[Mapping[str, Any]]) -> set[Path]:
    """The new files among these that the job downloaded."""
    kinds: dict[str, set[str]] = {}
    for entry in entries:
        kinds.setdefault(entry["path"], set()).add(entry["kind"])
    new = (Path(path) for path, of_path in kinds.items() if of_path <= {"absent", "times"})
    return {*Downloads(folder).among({path: path for path in new if os.path.isfile(path)})}  # noqa: PTH113 - of any name


class Downloads:
    """What the processes of a job downloaded, as :mod:`ddpdoctor.recorder.downloads` notes it in a folder."""

    def __init__(self, folder: Path) -> None:
        self._began: dict[str, int] = {}
        self._lengths: set[int] = set()
        self._files: dict[str, list[int]] = {}
        for place in folder.glob("*.downloads"):
            for line in place.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
                with contextlib.suppress(ValueError):  # half a line, of a process that was killed
                    self._add(json.loads(line))

    def _add(self, entry: dict[str, Any]) -> None:
        self._files |= entry.get("files", {})
        for digest, length in entry.get("answers", {}).items():
            self._began[digest] = min(entry["began"], self._began.get(digest, entry["began"]))
            self._lengths.add(length)

    def among(self, files: Mapping[Path, Path]) -> Iterator[Path]:
        """Those of some new files that are downloads, by the places where they are now; none of what the job had
        written before it came as an answer."""
        if not self._began and not self._files:
            return
        times: dict[str, list[tuple[int, Path]]] = {}
        for path, place in files.items():
            there = place.lstat()
            if self._files.get(str(path)) == [there.st_size, there.st_mtime_ns]:
                yield path
            elif stat.S_ISREG(there.st_mode) and there.st_size in self._lengths:
                times.setdefault(_digest(place), []).append((there.st_ctime_ns, path))
        for digest in times.keys() & self._began.keys():
            if min(times[digest])[0] > self._began[digest] - _CLOCK_STEP:
                yield from (path for _, path in times[digest])


def _digest(path: Path) -> str:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return sha1(content, usedforsecurity=False).hexdigest()


def _undo(entry: dict[str, Any], stay: set[Path]) -> None:
    path = Path(entry["path"])
    with contextlib.suppress(OSError):
        there = path.lstat()
        entry["size"] = there.st_size
        entry["is_folder"] = stat.S_ISDIR(there.st_mode)
    if path in stay:
        entry["downloaded"] = True
        return
    try:
        if entry["kind"] == "absent":
            _remove(path, stay)
        elif entry["kind"] in _UNDO:
            _UNDO[entry["kind"]](path, entry)
    except OSError as error:
        entry["failed"] = str(error)


def _write(path: Path, entries: Sequence[Mapping[str, Any]]) -> None:
    draft = path.with_name(f"{path.name}.part")
    draft.write_text(json.dumps(entries), encoding="utf-8", errors="surrogateescape")
    draft.replace(path)


def _entries(folder: Path) -> list[dict[str, Any]]:
    entries = []
    for place in folder.glob("*.json"):
        with contextlib.suppress(ValueError, OSError):
            entries.append(json.loads(place.read_text(encoding="utf-8", errors="surrogateescape")))
    return entries


def _remove(path: Path, stay: Collection[Path] = ()) -> None:
    """Remove a file, or a folder with all that is in it but what stays."""
    if any(path in file.parents for file in stay):
        for child in path.iterdir():
            _remove(child, stay)
    elif path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path not in stay:
        path.unlink(missing_ok=True)


def _times(path: Path, entry: Mapping[str, Any]) -> None:
    with contextlib.suppress(OSError):
        os.utime(path, ns=tuple(entry["times"]), follow_symlinks=False)


def _file(path: Path, entry: Mapping[str, Any]) -> None:
    if _name(path, entry["kept"]):
        if path.stat().st_size > entry["length"]:  # something was added
            os.truncate(path, entry["length"])
        _finish(path, entry)


def _name(path: Path, name: str) -> bool:
    """Give a file its name back; whether it was kept."""
    kept = Path(name)
    if is_kept := kept.exists():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        kept.replace(path)
        kept.unlink(missing_ok=True)  # rename(2) leaves two names of one file alone
    return is_kept


def _copy(path: Path, entry: Mapping[str, Any]) -> None:
    """A file that had several names, all of which have its content."""
    if "name" in entry:
        _name(path, entry["name"])
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or not filecmp.cmp(entry["kept"], path, shallow=False):
        shutil.copyfile(entry["kept"], path)
    Path(entry["kept"]).unlink()
    _finish(path, entry)


def _finish(path: Path, entry: Mapping[str, Any]) -> None:
    there = path.lstat()
    if [there.st_uid, there.st_gid] != [*entry["owner"]]:
        os.chown(path, *entry["owner"], follow_symlinks=False)
    if not path.is_symlink():
        path.chmod(entry["mode"])
    _times(path, entry)


def _link(path: Path, entry: Mapping[str, Any]) -> None:
    if not (path.is_symlink() and os.readlink(path) == entry["to"]):  # noqa: PTH115
        _remove(path)
        path.symlink_to(entry["to"])
    _finish(path, entry)


def _folder(path: Path, entry: Mapping[str, Any]) -> None:
    if path.is_symlink() or not path.is_dir():
        _remove(path)
        path.mkdir(parents=True)
    _finish(path, entry)


def _moved(path: Path, entry: Mapping[str, Any]) -> None:
    moved = Path(entry["to"])
    if moved.is_dir() and not moved.is_symlink():
        _remove(path)
        moved.rename(path)


_UNDO: dict[str, Callable[[Path, Mapping[str, Any]], object]] = {
    "copy": _copy,
    "file": _file,
    "folder": _folder,
    "link": _link,
    "moved": _moved,
    "name": lambda path, entry: _name(path, entry["name"]),
    "other": _finish,
    "times": _times,
}
