"""The files that a run would have written, and did not."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ddpdoctor.text import plural, size


@dataclass(frozen=True)
class WrittenFile:
    """A file, or a new folder without one, whose path then ends in a slash."""

    path: str
    """Absolute."""
    size: int
    existed: bool = False
    """Whether there was such a file before the run."""
    removed: bool = False
    """Whether the run only removed it."""
    downloaded: bool = False
    """Whether it is a new one that the run downloaded, and is still there."""


@dataclass(frozen=True)
class WouldWrite:
    """What became of the files of a job that is undone."""

    files: tuple[WrittenFile, ...] = ()
    why_not: str | None = None
    """Why there was no private view of the file system, where that is so."""
    uncovered: tuple[str, ...] = ()
    """Folders that it leaves out though they can be written to."""
    outside: tuple[str, ...] = ()
    """Hosts on which a process of the job had no such view, since a daemon or another host started it."""
    left: tuple[str, ...] = ()
    """What is not as it was in the working directory, since a program or a library in another language changed it."""
    lost: tuple[str, ...] = ()
    """What Python code changed, and could not be undone, with the host where that is another one."""


def phrases(files: Iterable[WrittenFile], working: Path) -> list[str]:
    """Each file of the working directory's own, and each folder with what the run would have written in it."""
    groups: dict[str, list[WrittenFile]] = defaultdict(list)
    for file in files:
        groups[_group(Path(file.path), working)].append(file)
    return [_phrase(name, group) for name, group in sorted(groups.items())]


def relative(path: str, working: Path) -> str:
    """A path as the report names it."""
    return str(Path(path).relative_to(working)) if Path(path).is_relative_to(working) else path


def _group(path: Path, working: Path) -> str:
    parts = path.relative_to(working).parts if path.is_relative_to(working) else ()
    if len(parts) == 1:
        return parts[0]
    return f"{parts[0]}/\N{HORIZONTAL ELLIPSIS}" if parts else str(path)


def _phrase(name: str, files: list[WrittenFile]) -> str:
    total = size(sum(file.size for file in files))
    existed = sum(file.existed for file in files)
    if len(files) > 1:
        over = f", {existed} of them over existing ones" if existed else ""
        return f"{name} ({plural(len(files), 'file')}, {total}{over})"
    if files[0].removed:
        return f"{name} (removed)"
    if files[0].path.endswith("/"):
        return f"{name} (a folder)"
    return f"{name} ({total}{', over an existing file' if existed else ''})"
