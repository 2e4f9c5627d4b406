"""Gathers with a function that lets gradients pass."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import argument, dotted, import_name

_MODULE = "torch.distributed.nn.functional"
"""Imported by its name: torch.distributed does not import it."""


def apply(case: Case) -> str:
    """The ``all_gather`` that returns the parts."""
    source, statement = case.source, case.statement
    call = case.call("all_gather")
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
