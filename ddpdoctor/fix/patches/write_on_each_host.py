"""Lets one rank of each host write what its ranks read: hosts may have disks of their own."""

from __future__ import annotations

import ast

from ddpdoctor.fix.case import Case
from ddpdoctor.fix.patches import log_on_rank_0
from ddpdoctor.fix.patches.write_on_rank_0 import under, written
from ddpdoctor.fix.reading import calls
from ddpdoctor.fix.writing import is_local_rank_0, is_rank_0
from ddpdoctor.model import Kind
from ddpdoctor.trace.files import is_of_training

cures = ("DD020",)
after = ("exist_ok",)
_COPIES = tuple(f"shutil.{name}" for name in ("copy", "copy2", "copyfile", "copytree", "move"))
_OF_RANK_0 = ("torch.save", *_COPIES, "os.rename", "os.replace")
"""What is done with files that ranks made in training, which are on the disk of rank 0."""
_HANDLERS = ("RotatingFileHandler", "TimedRotatingFileHandler")
_LOGS = ("logging.FileHandler", "logging.basicConfig", *(f"logging.handlers.{name}" for name in _HANDLERS))


def apply(case: Case) -> str:
    """Put the statement that writes under local rank 0, with a barrier behind it; results of training under rank 0."""
    source = case.source
    if calls(source, *_LOGS, within=case.statement):
        return log_on_rank_0.apply(case)
    statement = written(source, case.statement)
    paths = [subject.name for subject in case.finding.about if subject.kind is Kind.PATH]
    results = paths and all(is_of_training(case.trace.recorded, path) for path in paths)
    is_cache = isinstance(statement, ast.If)
    if results or (not is_cache and calls(source, *_OF_RANK_0, within=statement)):
        return under(source, statement, is_rank_0(source, statement), "rank 0")
    return under(source, statement, is_local_rank_0(source, statement), "one rank of each host")
