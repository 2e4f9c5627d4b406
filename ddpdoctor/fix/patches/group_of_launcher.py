"""Lets init_process_group take rank and number of ranks from the launcher."""

from __future__ import annotations

import re

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import argument

_VARIABLE = re.compile(r"os\.environ\[.(?:RANK|WORLD_SIZE|LOCAL_RANK|MASTER_ADDR|MASTER_PORT).\] = ")


def apply(case: Case) -> str:
    """Leave out what the launcher's variables say, and do not overwrite them."""
    source, call = case.call_at(case.finding.where, "init_process_group")
    given = [arg for name in ("init_method", "rank", "world_size") if (arg := argument(call, name))]
    if given:
        source.remove_arguments(call, given)
    set_here = [node for node in source.all(cst.SimpleStatementLine) if _VARIABLE.match(source.code(node))]
    for statement in set_here:
        source.delete(statement)
    if not given and not set_here:
        raise CannotPatch("nothing in this file contradicts the launcher")
    return "rank and number of ranks of the launcher"
