"""How the files of a report are named for a person."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from ddpdoctor.model import Report, Where, below_libraries


@dataclass(frozen=True)
class Places:
    """The folders to which files are relative."""

    working: Path = field(default_factory=Path.cwd)
    script: PurePath | None = None
    """The script's folder, where the script is named by an absolute path."""

    @classmethod
    def of(cls, report: Report) -> Places:
        """Those of a report."""
        return cls(script=_folder_of_script(str(report.run.get("script") or "")))

    def place(self, where: Where) -> str:
        """``train.py:88 in train_step``."""
        return self.line(where) + (f" in {where.function}" if where.function else "")

    def line(self, where: Where) -> str:
        """``train.py:88``."""
        return self.file(where.file) + (f":{where.line}" if where.line is not None else "")

    def file(self, file: str) -> str:
        """A file, relative to the working directory or to the script's folder where it lies below one of them."""
        path = PurePath(file)
        for folder in (self.working, self.script):
            if folder is not None and path.is_absolute() and path.is_relative_to(folder):
                return str(path.relative_to(folder))
        return below_libraries(file)

    def in_repository(self, file: str) -> str:
        """A file, relative to the top of its repository where it lies below it; else as it is."""
        path, top = Path(os.path.normpath(self.working / file)), self._top()
        pairs = ((path, top), (Path(os.path.realpath(path)), Path(os.path.realpath(top))))
        return next((str(one.relative_to(other)) for one, other in pairs if one.is_relative_to(other)), file)

    def _top(self) -> Path:
        """The folder that a CI job has checked out, or the repository around the working directory, or that itself."""
        given = next(filter(None, map(os.environ.get, ("GITHUB_WORKSPACE", "CI_PROJECT_DIR"))), None)
        if given and self.working.is_relative_to(given):
            return Path(given)
        around = (self.working, *self.working.parents)
        return next((folder for folder in around if os.path.lexists(folder / ".git")), self.working)


def _folder_of_script(command: str) -> PurePath | None:
    """The folder of the first absolute path in a command line that names a Python file."""
    try:
        words = shlex.split(command)
    except ValueError:  # it was shortened
        return None
    scripts = (PurePath(word) for word in words if word.endswith(".py"))
    return next((script.parent for script in scripts if script.is_absolute()), None)
