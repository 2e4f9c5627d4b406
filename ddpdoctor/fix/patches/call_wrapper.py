"""Trains through the wrapper instead of the module inside it."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import callee, dotted
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.wrappers import DDP, assigned_to

cures = ("DD201",)


def apply(case: Case) -> str:
    """Call the wrapper in the statement that calls the module."""
    source, statement = case.source, case.statement
    for call in source.all(cst.Call, within=statement):
        name = call.func
        if isinstance(name, cst.Attribute) and name.attr.value == "module" and dotted(name):
            source.replace(name, source.code(name.value))
            return f"{source.code(name.value)} called, not {source.code(name)}"
        wrapper = _wrapper_of(source, call)
        if wrapper:
            source.replace(name, wrapper)
            return f"{wrapper} called, not {source.code(name)}"
    raise CannotPatch("the line does not call the wrapped module itself")


def _wrapper_of(source: Source, call: Node) -> str | None:
    """The name of the wrapper of what is called, where both have names in this function."""
    for other in source.all(cst.Call):
        wraps = (
            callee(source, other) == DDP
            and other.args
            and source.code(other.args[0].value) == source.code(call.func)
        )
        if wraps and source.scope(other) in (source.scope(call), source.tree):
            name: str = source.code(assigned_to(source, other))
            return name if name != source.code(call.func) else None
    return None
