"""Updates a copy of the weights on every rank."""

from __future__ import annotations

import re

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.guards import rank_guard
from ddpdoctor.fix.names import dotted
from ddpdoctor.fix.patches.out_of_rank_guard import move_out

cures = ("DD226",)


def apply(case: Case) -> str:
    """Move the update of what the line evaluates out of the condition by rank."""
    source, evaluated = case.shown
    names = {(dotted(call.func) or "").partition(".")[0] for call in source.all(cst.Call, within=evaluated)}
    for name in filter(None, names):
        for call in source.all(cst.Call):
            statement = source.statement(call)
            is_update = re.match(rf"{re.escape(name)}\.\w*(?:update|step)\w*$", dotted(call.func) or "")
            if is_update and rank_guard(source, statement) is not None:
                move_out(source, statement)
                return f"{source.code(call.func)} on every rank"
    raise CannotPatch("its update is under no condition by rank in this file")
