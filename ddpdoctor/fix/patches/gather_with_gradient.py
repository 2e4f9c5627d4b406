"""Gathers with a function that lets gradients pass."""

from __future__ import annotations

import re

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import argument, calls, dotted, import_name
from ddpdoctor.fix.source import Node, Source

cures = ("DD204", "DD212")
_MODULE = "torch.distributed.nn.functional"
"""Imported by its name: torch.distributed does not import it."""


def apply(case: Case) -> str:
    """The ``all_gather`` that returns the parts."""
    source, call = case.source, _call(case)
    statement = source.statement(call)
    parts, tensor = argument(call, "tensor_list", 0), argument(call, "tensor", 1)
    is_statement = isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[0], cst.Expr)
    if parts is None or tensor is None or not dotted(parts.value) or not is_statement:
        raise CannotPatch("the list that all_gather fills has no name")
    name = source.code(parts.value)
    for other in source.block(statement):
        made = other.body[0] if isinstance(other, cst.SimpleStatementLine) else None
        if (
            isinstance(made, cst.Assign)
            and source.code(made.targets[0].target) == name
            and len(made.targets) == 1
        ):
            source.delete(other)
    import_name(source, _MODULE, "all_gather")
    source.replace(call, f"{name} = all_gather({source.code(tensor.value)})")
    return f"{_MODULE}.all_gather, which carries gradients"


def _call(case: Case) -> Node:
    """The call at the line; where that has none, the only one of the file that could pass gradients."""
    every = [call for call in calls(case.source, "all_gather") if not _is_without(case.source, call)]
    return every[0] if len(every) == 1 else case.call("all_gather")


def _is_without(source: Source, call: Node) -> bool:
    """Whether no gradient is meant to pass here, or a function of its own passes it."""
    for around in source.above(call):
        parts = [
            *getattr(around, "items", ()),
            *getattr(around, "decorators", ()),
            *getattr(around, "bases", ()),
        ]
        if any(
            re.search(r"no_grad|inference_mode|autograd|\bFunction$", source.code(part)) for part in parts
        ):
            return True
    return False
