"""Evaluates on one rank by the module inside the wrapper, whose forward sends nothing to the others."""

from __future__ import annotations

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.guards import module_of, rank_guard
from ddpdoctor.fix.names import dotted
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.values import call_sites, parameter_of, passed
from ddpdoctor.fix.wrappers import calls_of_wrappers, is_wrapped

cures = ("DD303",)


def apply(case: Case) -> str:
    """Call ``model.module`` where one rank calls ``model``, or pass it to the function that calls it."""
    source, statement = case.source, case.statement
    called = [call.func for call in calls_of_wrappers(source, statement)]
    if rank_guard(source, statement) is None:
        called = [given for name in called for given in _passed(source, name)]
    if not called:
        raise CannotPatch("the line is not one in which a single rank calls a wrapper")
    for name in called:
        source.replace(name, module_of(source, source.code(name)))
    return f"{source.code(called[0])}.module called on one rank"


def _passed(source: Source, name: Node) -> list[Node]:
    """The wrappers that calls under a condition by rank pass for a parameter."""
    function, number = parameter_of(source, name) or (None, 0)
    sites = call_sites(source, function) if function is not None else []
    given = [passed(source, call, function, number) for call in sites if rank_guard(source, call)]
    return [node for node in given if node is not None and dotted(node) and is_wrapped(source, node)]
