"""Evaluates on one rank by the module inside the wrapper, whose forward sends nothing to the others."""

from __future__ import annotations

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.guards import module_of, rank_guard
from ddpdoctor.fix.wrappers import calls_of_wrappers


def apply(case: Case) -> str:
    """Call ``model.module`` where one rank calls ``model``."""
    source, statement = case.source, case.statement
    called = calls_of_wrappers(source, statement)
    if not called or rank_guard(source, statement) is None:
        raise CannotPatch("the line is not one in which a single rank calls a wrapper")
    for call in called:
        source.replace(call.func, module_of(source, source.code(call.func)))
    return f"{source.code(called[0].func)}.module called on one rank"
