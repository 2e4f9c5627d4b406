"""Goes on with the epoch behind the last one that was done."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.passes import epoch_loop
from ddpdoctor.fix.source import Node, Source

cures = ("DD405",)
after = ("out_of_rank_guard",)


def apply(case: Case) -> str:
    """Begin the loop over epochs with the one that is read; where it does, with the next."""
    source = case.source
    if not [loop for loop in source.on_line(case.line, cst.For) if source.line(loop) == case.line]:
        raise CannotPatch("the line is no loop")
    loop = epoch_loop(source, case.loop).loop
    read = _read(source)
    counted = loop.iter if isinstance(loop, cst.For) else None
    is_range = isinstance(counted, cst.Call) and source.code(counted.func) == "range"
    if not is_range or read is None:
        raise CannotPatch("the epoch of the checkpoint is not assigned in this file")
    name = source.code(read.targets[0].target)
    if len(loop.iter.args) == 1:
        source.replace(loop.iter.args[0].value, f"{name}, {source.code(loop.iter.args[0].value)}")
        return f"the epochs from {name} on"
    source.replace(read.value, f"{source.code(read.value)} + 1")
    return "the epoch behind the one that was done"


def _read(source: Source) -> Node | None:
    """The assignment of the epoch from a checkpoint."""
    for node in source.all(cst.Assign):
        if isinstance(node.value, cst.Subscript) and "epoch" in source.code(node.value.slice[0]).lower():
            return node
    return None
