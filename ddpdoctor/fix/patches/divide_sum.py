"""Divides by the number of ranks what is summed over them."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import argument
from ddpdoctor.fix.values import world_size

cures = ("DD211",)


def apply(case: Case) -> str:
    """A division behind the all_reduce."""
    source, statement = case.source, case.statement
    call = case.call("all_reduce", "all_reduce_coalesced")
    body = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    tensor = argument(call, "tensor", 0)
    if isinstance(body, cst.Assign) and body.value is call:
        name = source.code(body.targets[0].target)
        source.insert_after(statement, f"{name} = {name} / {world_size(source, statement, plain=True)}")
    elif (
        isinstance(body, cst.Expr)
        and body.value is call
        and tensor is not None
        and not argument(call, "async_op")
    ):
        name = source.code(tensor.value)
        source.insert_after(statement, f"{name} /= {world_size(source, statement, plain=True)}")
    else:
        raise CannotPatch("the sum is not at hand behind the all_reduce")
    return f"{name} divided by the number of ranks"
