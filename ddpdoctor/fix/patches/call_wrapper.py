"""Trains through the wrapper instead of the module inside it."""

from __future__ import annotations

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.reading import DDP, assigned_to, calls, dotted, is_wrapped
from ddpdoctor.fix.source import Node, Source

cures = ("DD201",)
tells = True


def apply(case: Case) -> str:
    """Call the wrapper in the statement that calls the module."""
    source, statement = case.source, case.statement
    for call in source.all(ast.Call, within=statement):
        name = call.func
        is_inside = isinstance(name, ast.Attribute) and name.attr == "module" and dotted(name)
        wrapper = source.code(name.value) if is_inside else _wrapper_of(source, call)
        if wrapper and (not is_inside or is_wrapped(source, name.value)):
            source.replace(name, wrapper)
            return f"{wrapper} called, not {source.code(name)}"
    raise CannotPatch("the line does not call the wrapped module itself")


def _wrapper_of(source: Source, call: Node) -> str | None:
    """The name of the wrapper of what is called, where both have names in this function."""
    for other in calls(source, DDP):
        wraps = other.args and source.code(other.args[0]) == source.code(call.func)
        if wraps and source.scope(other) in (source.scope(call), source.tree):
            name = assigned_to(source, other)
            return name if name != source.code(call.func) else None
    return None
