"""Weighs the mean of each rank by its share of the elements of all ranks."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.guards import with_group
from ddpdoctor.fix.names import DIST, argument, free, use, world_size

_TARGET = 1
"""The position of the targets in the losses of torch."""


def apply(case: Case) -> str:
    """Multiply the loss by the count of this rank, and divide it by the mean count."""
    source, statement = case.source, case.statement
    body = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    loss = body.value if isinstance(body, (cst.Assign, cst.Return)) else None
    target = argument(loss, "target", _TARGET) if isinstance(loss, cst.Call) else None
    if loss is None or target is None or target.keyword is not None:
        raise CannotPatch("the line does not compute the loss from outputs and targets")
    weight = argument(loss, "weight")
    if weight is not None and source.code(weight.value) != "None":
        raise CannotPatch("the mean is weighted by classes, and not over elements")
    ignored = argument(loss, "ignore_index")
    code = source.code(target.value)
    tensor, device = use(source, "torch.tensor"), f", device={code}.device" if "cuda" in source.text else ""
    count = f"({code} != {source.code(ignored.value)}).sum()" if ignored else f"{tensor}(len({code}){device})"
    name = source.code(body.targets[0].target) if isinstance(body, cst.Assign) else "loss"
    tokens, total = free(source, statement, "count"), free(source, statement, "total")
    lines = with_group(
        source,
        f"{tokens} = {count}\n"
        f"{total} = {tokens}.clone()\n"
        f"{use(source, f'{DIST}.all_reduce')}({total})\n"
        f"{name} = {name} * {tokens} * {world_size(source, statement, plain=True)} / {total}",
    )
    if isinstance(body, cst.Return):
        source.insert_before(statement, f"{name} = {source.code(loss)}\n{lines}")
        source.replace(loss, name)
    else:
        source.insert_after(statement, lines)
    return "the mean over the elements of all ranks"
