"""Leaves a module without trainable parameters unwrapped: there is nothing to average."""

from __future__ import annotations

from ddpdoctor.fix.case import Case
from ddpdoctor.fix.wrappers import DDP

cures = ("DD223",)


def apply(case: Case) -> str:
    """Take the wrap away."""
    source, call = case.call_at(case.finding.where, DDP)
    statement = source.statement(call)
    module = source.code(call.args[0].value)
    if source.code(statement).replace(" ", "") == f"{module}={source.code(call)}".replace(" ", ""):
        source.delete(statement)
    else:
        source.replace(call, module)
    return f"{module} left unwrapped"
