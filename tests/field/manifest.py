"""The manifest of a batch of scripts.

Each script is a table ``[[script]]`` in ``batch_N.toml``; its keys are the fields of Script. A defect has the codes
that name it rightly and the lines that are right places for it; without lines, any line is.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Defect:
    """What a person read in a script, or verified there after ddpdoctor named it."""

    codes: tuple[str, ...]
    what: str
    lines: tuple[int, ...] = ()
    file: str = ""
    """Relative to the repository; empty: the script."""
    by_eye: bool = True
    """False where it was noticed only after ddpdoctor had named it."""


@dataclass(frozen=True)
class Change:
    """What is made smaller: a word of one line."""

    line: int
    old: str
    new: str
    file: str = ""


@dataclass(frozen=True)
class Script:
    """One script of a batch."""

    name: str
    repository: str
    commit: str
    path: str
    style: str
    launch: str
    """The launch line, as it stands after ``ddpdoctor check --rehearse --``."""
    folder: str = "."
    """Where it is launched, relative to the repository."""
    options: tuple[str, ...] = ()
    """Further options of ``ddpdoctor check``."""
    before: str = ""
    """A command that is run first, by itself: a preprocessing script, or a first start before a resume."""
    stubs: tuple[str, ...] = ()
    """Packages that are replaced: whatever is asked of them is there, and does nothing."""
    changes: tuple[Change, ...] = ()
    data: tuple[dict[str, Any], ...] = ()
    """Random data: ``make`` names a function of data.py, ``at`` the place below the folder, the rest its arguments."""
    defects: tuple[Defect, ...] = ()
    misleading: tuple[Defect, ...] = ()
    """Findings that are right about a problem and tell a wrong story of it."""
    notes: str = ""


@dataclass(frozen=True)
class Batch:
    """The scripts that were taken together."""

    number: int
    packages: tuple[str, ...] = ()
    """What pip installs beside ddpdoctor."""
    scripts: tuple[Script, ...] = field(default=())


def batches() -> list[Batch]:
    """All batches, by number."""
    files = sorted(FOLDER.glob("batch_*.toml"), key=lambda file: int(file.stem.partition("_")[2]))
    return [read(file) for file in files]


def read(file: Path) -> Batch:
    """One batch.

    Raises:
        TypeError: a table has a key that is no field, or lacks one.
    """
    table = tomllib.loads(file.read_text())
    scripts = tuple(script_of(each) for each in table.get("script", ()))
    return Batch(int(file.stem.partition("_")[2]), tuple(table.get("packages", ())), scripts)


def script_of(table: dict[str, Any]) -> Script:
    defects = {key: tuple(map(defect_of, table.pop(key, ()))) for key in ("defects", "misleading")}
    changes = tuple(Change(**change) for change in table.pop("changes", ()))
    plain = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    return Script(**plain, **defects, changes=changes)


def defect_of(table: dict[str, Any]) -> Defect:
    lists = {key: tuple(table.pop(key, ())) for key in ("codes", "lines")}
    return Defect(**lists, **table)
