"""Lets one rank of each host write what its ranks read: hosts may have disks of their own."""

from __future__ import annotations

from ddpdoctor.fix.case import Case
from ddpdoctor.fix.guards import is_local_rank_0
from ddpdoctor.fix.patches.write_on_rank_0 import under, written


def apply(case: Case) -> str:
    """Put the statement that writes under local rank 0, with a barrier behind it."""
    source = case.source
    statement = written(source, case.statement)
    return under(source, statement, is_local_rank_0(source, statement), "one rank of each host")
