"""Divides a stream among ranks, or among the workers of a rank."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import argument, callee, dotted, use
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.values import rank, value_of, world_size

cures = ("DD102",)


def apply(case: Case) -> str:
    """Take every world_size-th of what the dataset iterates."""
    source, method = iterates(case)
    for call in source.all(cst.Call, within=method):
        texts = [source.code(arg.value) for arg in call.args]
        if callee(source, call) == "islice" and len(texts) == 4 and ".num_workers" in texts[3]:
            first = f"first = {rank(source, call)} * {texts[3]} + {texts[1]}"
            step = f"step = {world_size(source, call)} * {texts[3]}"
            source.insert_before(source.statement(call), f"{first}\n{step}")
            source.replace(call.args[1].value, "first")
            source.replace(call.args[3].value, "step")
            return "the stream divided among ranks and workers"
    loop = next(iter(source.all(cst.For, within=method)), None)
    if loop is None:
        raise CannotPatch("the dataset's __iter__ has no loop")
    divide(source, loop, f"{rank(source, loop)}, None, {world_size(source, loop)}")
    return "the stream divided among ranks"


def divide(source: Source, loop: Node, slice_: str) -> None:
    """Let a loop take a slice of what it iterates."""
    source.replace(loop.iter, f"{use(source, 'itertools.islice')}({source.code(loop.iter)}, {slice_})")


def iterates(case: Case) -> tuple[Source, Node]:
    """The ``__iter__`` of the dataset of the DataLoader that the finding is about.

    Raises:
        CannotPatch: it is not in the file of the DataLoader.
    """
    source, loader = case.call_at(next(iter(case.loaders()), case.finding.where), "DataLoader")
    dataset = argument(loader, "dataset", 0)
    made = (value_of(source, dataset.value) or dataset.value) if dataset else None
    name = dotted(made.func) if isinstance(made, cst.Call) else None
    for definition in source.all(cst.ClassDef):
        for method in source.all(cst.FunctionDef, within=definition):
            if definition.name.value == name and method.name.value == "__iter__":
                return source, method
    raise CannotPatch("the dataset is no class of the same file")
