"""Leaves a module without trainable parameters unwrapped: there is nothing to average."""

from __future__ import annotations

import ast

from ddpdoctor.fix.case import Case
from ddpdoctor.fix.reading import DDP

cures = ("DD223",)


def apply(case: Case) -> str:
    """Take the wrap away."""
    source, call = case.call_at(case.finding.where, DDP)
    statement, module = source.statement(call), source.code(call.args[0])
    is_alone = isinstance(statement, ast.Assign) and statement.value is call
    if is_alone and [source.code(target) for target in statement.targets] == [module]:
        source.delete(statement)
    else:
        source.replace(call, module)
    return f"{module} left unwrapped"
