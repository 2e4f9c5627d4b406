"""Gathers with a function that lets gradients pass."""

from __future__ import annotations

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.imports import DIST, import_name
from ddpdoctor.fix.reading import argument, calls, dotted, means
from ddpdoctor.fix.source import Node, Source

cures = ("DD204", "DD212")
_MODULE = "torch.distributed.nn.functional"
"""Imported by its name: torch.distributed does not import it."""
_GATHER = f"{DIST}.all_gather"
_WITHOUT = ("torch.no_grad", "torch.inference_mode", "torch.autograd.Function")


def apply(case: Case) -> str:
    """The ``all_gather`` that returns the parts."""
    source, call = case.source, _call(case)
    statement = source.statement(call)
    parts, tensor = argument(call, 0, "tensor_list"), argument(call, 1, "tensor")
    if parts is None or tensor is None or not dotted(parts) or not isinstance(statement, ast.Expr):
        raise CannotPatch("the list that all_gather fills has no name")
    name = source.code(parts)
    for other in source.block(statement):
        if isinstance(other, ast.Assign) and [source.code(target) for target in other.targets] == [name]:
            source.delete(other)
    import_name(source, _MODULE, "all_gather")
    source.replace(call, f"{name} = all_gather({source.code(tensor)})")
    return f"{_MODULE}.all_gather, which carries gradients"


def _call(case: Case) -> Node:
    """The call at the line; where that has none, the only one of the file that could pass gradients."""
    every = [call for call in calls(case.source, _GATHER) if not _is_without(case.source, call)]
    return every[0] if len(every) == 1 else case.call_at(case.finding.where, _GATHER)[1]


def _is_without(source: Source, call: Node) -> bool:
    """Whether no gradient is meant to pass here, or a function of its own passes it."""
    for around in source.above(call):
        items = (item.context_expr for item in getattr(around, "items", ()))
        parts = (*items, *getattr(around, "decorator_list", ()), *getattr(around, "bases", ()))
        if any(means(source, it.func if isinstance(it, ast.Call) else it, *_WITHOUT) for it in parts):
            return True
    return False
