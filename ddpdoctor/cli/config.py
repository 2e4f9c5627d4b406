"""The table [tool.ddpdoctor] of the nearest pyproject.toml, as ruff's users know it."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ddpdoctor import registry
from ddpdoctor.cli.errors import UsageError
from ddpdoctor.cli.options import CheckOptions
from ddpdoctor.model import Level

if sys.version_info >= (3, 11):
    import tomllib
else:  # the dependency of the same content
    import tomli as tomllib


@dataclass(frozen=True)
class Config:
    """What the project asks for."""

    folder: Path = field(default_factory=Path.cwd)
    """Where the file is; its patterns of file names begin there."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The values of options, by the fields of :class:`CheckOptions`."""
    per_file_ignores: Mapping[str, list[str]] = field(default_factory=dict)
    """Selectors of checks, by pattern of the file that a finding names."""

    def fill(self, options: CheckOptions) -> CheckOptions:
        """The options, with the project's values for those that were not given."""
        given = {name for name in self.options if getattr(options, name) not in (None, [])}
        return replace(options, **{name: self.options[name] for name in self.options.keys() - given})


def read_config(folder: Path) -> Config:
    """The table of the nearest pyproject.toml that has one, in this folder or above; UsageError where it cannot be
    read, or says what is not understood."""
    for place in (folder, *folder.parents):
        if (table := _table(place / "pyproject.toml")) is not None:
            return _config(place, table)
    return Config(folder)


def _table(file: Path) -> dict[str, Any] | None:
    try:
        text = file.read_text(encoding="utf-8")
        table = tomllib.loads(text).get("tool", {}).get("ddpdoctor")
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as wrong:
        raise UsageError(f"{file} is not TOML: {wrong}") from None
    if table is None or isinstance(table, dict):
        return table
    raise UsageError(f"{file}: [tool.ddpdoctor] is not a table")


def _config(folder: Path, table: Mapping[str, Any]) -> Config:
    where = folder / "pyproject.toml"
    if unknown := sorted(set(table) - set(_KEYS)):
        known = ", ".join(_KEYS)
        raise UsageError(f"{where}: [tool.ddpdoctor] has the unknown key {unknown[0]!r}; known keys: {known}")
    read = {}
    for key, value in table.items():
        try:
            read[key.replace("-", "_")] = _KEYS[key](value)
        except (TypeError, ValueError) as wrong:
            raise UsageError(f"{where}: {key} in [tool.ddpdoctor] {wrong}") from None
    ignores = read.pop("per_file_ignores", {})
    return Config(folder, read, ignores)


def _selectors(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(selector, str) for selector in value):
        raise TypeError("is not a list of codes")
    registry.verify_selectors(value)
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise TypeError(f"is {value!r}, not a number from 1 on")
    return value


def _level(value: Any) -> Level:
    if value not in (Level.FAIL.value, Level.WARN.value):
        raise TypeError(f"is {value!r}, neither 'fail' nor 'warn'")
    return Level(value)


def _patterns(value: Any) -> dict[str, list[str]]:
    if not isinstance(value, dict):
        raise TypeError("is not a table of file patterns and lists of codes")
    return {pattern: _selectors(selectors) for pattern, selectors in value.items()}


_KEYS: dict[str, Callable[[Any], Any]] = {
    "select": _selectors,
    "ignore": _selectors,
    "nproc": _count,
    "batches": _count,
    "fail-on": _level,
    "per-file-ignores": _patterns,
}
