"""Divides by the number of ranks what is summed over them."""

from __future__ import annotations

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.reading import argument, world_size

cures = ("DD211",)
tells = True
changes = ("loss",)


def apply(case: Case) -> str:
    """A division behind the all_reduce."""
    source, statement = case.source, case.statement
    _, call = case.call_at(case.finding.where, "all_reduce", "all_reduce_coalesced")
    tensor, size = argument(call, 0, "tensor"), world_size(source, statement, plain=True)
    if isinstance(statement, ast.Assign) and statement.value is call:
        name = source.code(statement.targets[0])
        source.insert_after(statement, f"{name} = {name} / {size}")
    elif _is_alone(statement, call) and tensor is not None:
        name = source.code(tensor)
        source.insert_after(statement, f"{name} /= {size}")
    else:
        raise CannotPatch("the sum is not at hand behind the all_reduce")
    return f"{name} divided by the number of ranks"


def _is_alone(statement: ast.stmt, call: ast.Call) -> bool:
    is_call = isinstance(statement, ast.Expr) and statement.value is call
    return is_call and argument(call, None, "async_op") is None
