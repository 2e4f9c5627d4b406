"""Goes on with the epoch behind the last one that was done."""

from __future__ import annotations

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.passes import epoch_loop
from ddpdoctor.fix.reading import means, values_of
from ddpdoctor.fix.source import Node, Source

cures = ("DD405",)
after = ("out_of_rank_guard",)


def apply(case: Case) -> str:
    """Begin the loop over epochs with the one that is read; where it does, with the next."""
    source = case.source
    if case.loop.lineno != case.line:
        raise CannotPatch("the line is no loop")
    around = epoch_loop(source, case.loop)
    source, loop = around.source, around.loop
    counted: Node = loop.iter if isinstance(loop, ast.For) else None
    is_range = isinstance(counted, ast.Call) and means(source, counted.func, "builtins.range")
    read = _read(source)
    if not is_range or read is None:
        raise CannotPatch("the epoch of the checkpoint is not assigned in this file")
    name = source.code(read.targets[0])
    if len(counted.args) == 1:
        source.replace(counted.args[0], f"{name}, {source.code(counted.args[0])}")
        return f"the epochs from {name} on"
    source.replace(read.value, f"{source.code(read.value)} + 1")
    return "the epoch behind the one that was done"


def _read(source: Source) -> Node | None:
    """The only number of a checkpoint that is assigned, and no state that is loaded."""
    found = [
        node
        for node in source.all(ast.Assign)
        if isinstance(node.value, ast.Subscript)
        and any(
            isinstance(made, ast.Call) and means(source, made.func, "torch.load")
            for made in values_of(source, node.value.value)
        )
    ]
    return found[0] if len(found) == 1 else None
