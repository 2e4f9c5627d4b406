"""Takes gradients by backward, which DistributedDataParallel averages, in place of torch.autograd.grad."""

from __future__ import annotations

import re

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import argument, qualified


def apply(case: Case) -> str:
    """``loss.backward()``, without the loop that puts the gradients into place."""
    source, statement = case.source, case.statement
    call = case.call("grad")
    if not (qualified(source, call.func) or "").endswith("autograd.grad"):
        raise CannotPatch("the gradients are not those of torch.autograd.grad")
    loss = argument(call, "outputs", 0)
    block = source.block(statement)
    behind = block[block.index(statement) + 1 :]
    loop = next((other for other in behind if isinstance(other, cst.For)), None)
    # What the loop does besides, as to scale a gradient, is part of how the model is trained.
    puts = loop is not None and re.fullmatch(r"\w+\.grad = \w+", source.code(loop.body).strip())
    if loss is None or loop is None or not puts:
        raise CannotPatch("the gradients are not put into place by a loop behind it")
    source.replace(statement.body[0], f"{source.code(loss.value)}.backward()")
    source.delete(loop)
    return "backward in place of torch.autograd.grad"
