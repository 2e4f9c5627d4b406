"""Lets one rank of each host write what its ranks read: hosts may have disks of their own."""

from __future__ import annotations

import re

import libcst as cst

from ddpdoctor.fix.case import Case
from ddpdoctor.fix.guards import is_local_rank_0, is_rank_0
from ddpdoctor.fix.names import calls
from ddpdoctor.fix.patches import log_on_rank_0
from ddpdoctor.fix.patches.write_on_rank_0 import under, written
from ddpdoctor.model import Kind
from ddpdoctor.trace.files import is_of_training

cures = ("DD020",)
after = ("exist_ok",)
_OF_RANK_0 = re.compile(r"\bsave\w*\(|\bcopy(?:2|file|tree)\(|\bshutil\.\w+\(|\brename\(|\bos\.replace\(")
"""What is done with files that ranks made in training, which are on the disk of rank 0."""

_LOGS = ("FileHandler", "RotatingFileHandler", "TimedRotatingFileHandler", "basicConfig")


def apply(case: Case) -> str:
    """Put the statement that writes under local rank 0, with a barrier behind it; results of training under rank 0."""
    source = case.source
    if calls(source, *_LOGS, within=case.statement):
        return log_on_rank_0.apply(case)
    statement = written(source, case.statement)
    paths = [subject.name for subject in case.finding.about if subject.kind is Kind.PATH]
    results = paths and all(is_of_training(case.trace.recorded, path) for path in paths)
    is_cache = isinstance(statement, cst.If)
    if results or (not is_cache and _OF_RANK_0.search(source.code(statement))):
        return under(source, statement, is_rank_0(source, statement), "rank 0")
    return under(source, statement, is_local_rank_0(source, statement), "one rank of each host")
