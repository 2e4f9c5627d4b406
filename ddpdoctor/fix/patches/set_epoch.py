"""Tells the sampler of a loop the epoch, before each pass."""

from __future__ import annotations

from itertools import takewhile

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import (
    argument,
    calls,
    dotted,
    free,
    has_group,
    is_optional,
    may_lack_group,
    value_of,
)
from ddpdoctor.fix.passes import EpochLoop, epoch_loop, iterated
from ddpdoctor.fix.source import Node, Source


def apply(case: Case) -> str:
    """Call ``set_epoch`` where the loop over epochs begins, or where an iterator is begun anew."""
    source, statement = case.source, case.statement
    body = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    begun = body.value if isinstance(body, cst.Assign) else None
    if isinstance(begun, cst.Call) and dotted(begun.func) == "iter" and begun.args:
        return _count_iterators(source, statement, begun.args[0].value)
    return tell_epoch(source, case.loop)


def _count_iterators(source: Source, statement: Node, loader: Node) -> str:
    """Count the iterators of a loader, each of which is a pass, and tell its sampler before the next."""
    function = source.enclosing(statement, cst.FunctionDef)
    around = list(takewhile(lambda node: node is not function, source.above(statement)))
    loops = [node for node in around if isinstance(node, (cst.For, cst.While))]
    if not loops or dotted(loader) is None:
        raise CannotPatch(f"the passes that begin at line {source.line(statement)} are in no loop")
    epoch, name = free(source, statement, "epoch"), _sampler_of(source, loader) or f"{dotted(loader)}.sampler"
    source.insert_before(loops[-1], f"{epoch} = 0")
    source.insert_before(statement, f"{epoch} += 1\n{name}.set_epoch({epoch})")
    return f"{name}.set_epoch before each pass"


def _sampler_of(source: Source, loader: Node) -> str | None:
    """The name of the sampler that a loader is made with in the same function."""
    made = value_of(source, loader)
    sampler = argument(made, "sampler") if isinstance(made, cst.Call) else None
    is_named = sampler is not None and dotted(sampler.value) and source.scope(made) is source.scope(loader)
    return str(source.code(sampler.value)) if is_named and sampler is not None else None


def tell_epoch(source: Source, loop: Node, sampler: str = "") -> str:
    """Call ``set_epoch`` before each pass of a loop over a DataLoader.

    Args:
        sampler: its name, where it is known to be readable there.
    """
    around = epoch_loop(source, loop)
    loader = iterated(source, loop)
    made = _loader_call(source, loader)
    if sampler:
        name = sampler
    elif made is not None:
        name = _of_call(source, made, around)
    else:
        name = _of_value(source, loop, loader, around)
    _take_away(source, name, around)
    line = f"{name}.set_epoch({around.epoch()})"
    condition = _condition(source, around)
    if condition:
        line = f"if {condition}:\n\t{line}"
    if isinstance(loader, (cst.Name, cst.Attribute)) and not _is_made_inside(source, around):
        source.insert_first(around.loop, line)
    else:
        source.insert_before(around.inner, line)
    return f"{name}.set_epoch before each pass"


def _condition(source: Source, around: EpochLoop) -> str:
    """When there is a DistributedSampler, as the loop may ask for it; empty where there always is one."""
    made = calls(source, "DistributedSampler")
    if not any(is_optional(source, call) or _is_either(source, call) for call in made) and (
        made or not may_lack_group(source)
    ):
        return ""
    for call in made:
        outer = source.enclosing(call, cst.If, cst.FunctionDef)
        if isinstance(outer, cst.If) and source.scope(call) is source.scope(around.loop):
            test: str = source.code(outer.test)
            return test
    return has_group(source)


def _is_either(source: Source, call: Node) -> bool:
    """Whether it is made by a conditional expression."""
    return source.enclosing(call, cst.IfExp, cst.SimpleStatementLine).__class__ is cst.IfExp


def _loader_call(source: Source, loader: Node) -> Node | None:
    """The call of DataLoader, where the loop makes it."""
    return loader if isinstance(loader, cst.Call) and argument(loader, "sampler") else None


def _of_call(source: Source, made: Node, around: EpochLoop) -> str:
    sampler = argument(made, "sampler")
    assert sampler is not None
    name: str = source.code(sampler.value)
    return name


def _of_value(source: Source, loop: Node, loader: Node, around: EpochLoop) -> str:
    """The sampler of a variable; what a call returns is given a name."""
    if isinstance(loader, cst.Subscript) and not source.all(cst.Call, within=loader):
        return f"{source.code(loader)}.sampler"
    if not isinstance(loader, (cst.Name, cst.Attribute)):
        source.insert_before(source.statement(loop), f"loader = {source.code(loader)}")
        source.replace(loader, "loader")
        return "loader.sampler"
    if around.inner is loop:
        if name := _sampler_of(source, loader):
            return name
    else:
        made = _assigned_at(source, around)
        sampler = argument(made, "sampler") if isinstance(made, cst.Call) else None
        if sampler is not None and dotted(sampler.value):
            return str(source.code(sampler.value))
    return f"{around.loader}.sampler"


def _assigned_at(source: Source, around: EpochLoop) -> Node | None:
    """What the loader was assigned where the epochs are counted."""
    names = [node for node in source.all(cst.Name, cst.Attribute, within=around.inner)]
    same = next((node for node in names if source.code(node) == around.loader), None)
    return value_of(source, same) if same is not None else None


def _is_made_inside(source: Source, around: EpochLoop) -> bool:
    """Whether the loader is assigned in the body of the loop over epochs."""
    targets = (
        source.code(target.target)
        for node in source.all(cst.Assign, within=around.loop)
        for target in node.targets
    )
    return any(around.loader == target for target in targets)


def _take_away(source: Source, name: str, around: EpochLoop) -> None:
    """A call that comes too late, or on one rank alone, goes."""
    for call in calls(source, "set_epoch", within=around.loop):
        statement = source.statement(call)
        alone = len(source.block(statement)) < 2
        if source.code(call.func) == f"{name}.set_epoch" and not alone:
            source.delete(statement)
