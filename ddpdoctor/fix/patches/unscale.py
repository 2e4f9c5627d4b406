"""Takes the GradScaler's scale out of the gradients before they are clipped."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.source import Node, Source

cures = ("DD217",)


def apply(case: Case) -> str:
    """Call ``unscale_`` behind the backward, or right before the clipping that the finding names."""
    source, statement = case.source, case.statement
    steps = [call for call in _methods(source, statement, "step") if call.args]
    if not steps:
        raise CannotPatch("no step of a GradScaler is in this function")
    scaler, optimizer = source.code(steps[0].func.value), source.code(steps[0].args[0].value)
    for call in _methods(source, statement, "unscale_"):
        source.delete(source.statement(call))
    line = f"{scaler}.unscale_({optimizer})"
    if steps[0] in source.all(cst.Call, within=statement):
        backwards = [source.statement(call) for call in _methods(source, statement, "backward")]
        inside = [backward for backward in backwards if backward in source.block(statement)]
        if not inside:
            raise CannotPatch("the backward is not beside the step")
        source.insert_after(inside[-1], line)
    else:
        source.insert_before(statement, line)
    return f"{line} before the clipping"


def _methods(source: Source, at: Node, name: str) -> list[Node]:
    """The calls of a method in the same function."""
    return [
        call
        for call in source.all(cst.Call, within=source.scope(at))
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == name
    ]
