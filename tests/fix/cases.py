"""A patch on a small script, without a run: the finding names the line that ends in ``# here``."""

from pathlib import Path

from ddpdoctor.fix.case import Case, Project
from ddpdoctor.fix.patches import patch_of
from ddpdoctor.model import Finding, Kind, Level, Where
from ddpdoctor.trace import Trace

MARK = "# here"


def finding_at(text: str, file: str = "train.py", code: str = "DD999") -> Finding:
    line = next((number for number, line in enumerate(text.split("\n"), 1) if MARK in line), None)
    return Finding(
        code, Level.FAIL, "", "", "", where=Where(file, line), about=Kind.LINE.of(f"{file}:{line}")
    )


def patched(name: str, text: str, folder: Path, trace: Trace | None = None) -> str:
    """The script after a patch."""
    (folder / "train.py").write_text(text, encoding="utf-8")
    project = Project(folder)
    patch_of(name)(Case(finding_at(text), trace or Trace(()), project))
    ((_, raw),) = project.after(project.take()).items()
    return raw.decode()
