"""Findings in small scripts, which name the line that ends in ``# here``, and what patches make of the scripts."""

import textwrap

from ddpdoctor.fix.case import Case, Project
from ddpdoctor.fix.patches import patches
from ddpdoctor.model import Finding, Kind, Level, Where
from ddpdoctor.trace import Trace

MARK = "# here"
NOTHING = Trace(())
IMPORTS = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
"""


def finding_at(text: str, file: str = "train.py", code: str = "DD999") -> Finding:
    line = next((number for number, line in enumerate(text.split("\n"), 1) if MARK in line), None)
    return Finding(
        code, Level.FAIL, "", "", "", where=Where(file, line), about=Kind.LINE.of(f"{file}:{line}")
    )


def patched(patch, text, folder, recorded=NOTHING, **others):
    """The script after a patch, without its imports; its finding is at the line that ends in ``# here``."""
    files = {"train.py": text, **{f"{name}.py": other for name, other in others.items()}}
    for name, content in files.items():
        (folder / name).write_text(IMPORTS + textwrap.dedent(content))
    project = Project(folder)
    patches()[patch].apply(Case(finding_at((folder / "train.py").read_text()), recorded, project))
    after = {
        path.name: raw.decode().removeprefix(IMPORTS) for path, raw in project.after(project.take()).items()
    }
    return after if others else after["train.py"]


def changed(before, *changes):
    """A script after these replacements, each of a text that it has once."""
    before = textwrap.dedent(before)
    for old, new in changes:
        assert before.count(old) == 1, old
        before = before.replace(old, new)
    return before
