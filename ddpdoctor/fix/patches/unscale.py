"""Takes the GradScaler's scale out of the gradients before they are clipped."""

from __future__ import annotations

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.reading import calls

cures = ("DD217",)
tells = True


def apply(case: Case) -> str:
    """Call ``unscale_`` behind the backward, or right before the clipping that the finding names."""
    source, statement = case.source, case.statement
    scope = source.scope(statement)
    steps = [call for call in calls(source, "step", within=scope) if call.args]
    if not steps:
        raise CannotPatch("no step of a GradScaler is in this function")
    line = f"{source.code(steps[0].func.value)}.unscale_({source.code(steps[0].args[0])})"
    for call in calls(source, "unscale_", within=scope):
        source.delete(source.statement(call))
    if source.statement(steps[0]) is statement:
        backwards = [source.statement(call) for call in calls(source, "backward", within=scope)]
        inside = [backward for backward in backwards if backward in source.block(statement)]
        if not inside:
            raise CannotPatch("the backward is not beside the step")
        source.insert_after(inside[-1], line)
    else:
        source.insert_before(statement, line)
    return f"{line} before the clipping"
