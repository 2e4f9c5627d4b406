"""Evaluates on one rank by the module inside the wrapper, whose forward sends nothing to the others."""

from __future__ import annotations

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.reading import calls_of_wrappers, dotted, is_wrapped, passed, rank_guard
from ddpdoctor.fix.writing import module_of

cures = ("DD303",)
tells = True


def apply(case: Case) -> str:
    """Call ``model.module`` where one rank calls ``model``, or pass it to the function that calls it."""
    source, statement = case.source, case.statement
    called = [(source, call.func) for call in calls_of_wrappers(source, statement)]
    if rank_guard(source, statement) is None:
        called = [
            (there, given)
            for _, name in called
            for there, call, given in passed(source, name)
            if rank_guard(there, call) and dotted(given) and is_wrapped(there, given)
        ]
    if not called:
        raise CannotPatch("the line is not one in which a single rank calls a wrapper")
    for there, name in called:
        there.replace(name, module_of(there, there.code(name)))
    return f"{called[0][0].code(called[0][1])}.module called on one rank"
