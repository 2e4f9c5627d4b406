"""Tells the sampler of a loop the epoch, before each pass."""

from __future__ import annotations

from itertools import takewhile

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import argument, calls, define, dotted, qualified, use
from ddpdoctor.fix.passes import EpochLoop, epoch_loop, iterated
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.values import free, has_group, is_optional, may_lack_group, value_of

cures = ("DD103",)


def apply(case: Case) -> str:
    """Call ``set_epoch`` where the loop over epochs begins, or where an iterator is begun anew.

    ``itertools.cycle`` keeps the batches of its first pass: a generator of epochs replaces it.
    """
    source, statement = case.source, case.statement
    for call in source.on_line(case.line, cst.Call):
        if qualified(source, call.func) == "itertools.cycle":
            return _replace_cycle(source, call)
    body = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    begun = body.value if isinstance(body, cst.Assign) else None
    if isinstance(begun, cst.Call) and dotted(begun.func) == "iter" and begun.args:
        return _count_iterators(source, statement, begun.args[0].value)
    value = body.value if isinstance(body, cst.Expr) else None
    is_pass = isinstance(value, cst.Yield) and isinstance(value.value, cst.From)
    return tell_epoch(source, statement if is_pass else case.loop)


def _replace_cycle(source: Source, call: Node) -> str:
    """A generator that goes through a loader again and again, and tells its sampler the epoch."""
    loader = call.args[0].value
    if dotted(loader) is None:
        raise CannotPatch(f"the loader that line {source.line(call)} cycles has no name")
    line = f"loader.{_kind(source, loader)}.set_epoch(epoch)"
    condition = _condition(source, source.tree)
    statement = f"if {condition}:\n\t\t\t{line}" if condition else line
    name = free(source, source.tree.body[0], "endless")
    define(
        source,
        f"def {name}(loader):\n\tfor epoch in {_count_of(source, call)}():\n\t\t{statement}\n\t\tyield from loader",
    )
    source.replace(call.func, name)
    return "a generator that calls set_epoch, in place of itertools.cycle"


def _count_of(source: Source, cycle: Node) -> str:
    """``itertools.count``, as the file may write it; in the import, it replaces ``cycle`` where that is used once."""
    names = [node for node in source.all(cst.Name) if node.value == source.code(cycle.func)]
    if len(names) == 2 and isinstance(
        source.enclosing(names[0], cst.ImportFrom, cst.FunctionDef), cst.ImportFrom
    ):
        source.replace(names[0], "count")
        return "count"
    return use(source, "itertools.count")


def _count_iterators(source: Source, statement: Node, loader: Node) -> str:
    """Count the iterators of a loader, each of which is a pass, and tell its sampler before the next."""
    function = source.enclosing(statement, cst.FunctionDef)
    around = list(takewhile(lambda node: node is not function, source.above(statement)))
    loops = [node for node in around if isinstance(node, (cst.For, cst.While))]
    if not loops or dotted(loader) is None:
        raise CannotPatch(f"the passes that begin at line {source.line(statement)} are in no loop")
    epoch, name = (
        free(source, statement, "epoch"),
        _sampler_of(source, loader) or f"{dotted(loader)}.{_kind(source, loader)}",
    )
    source.insert_before(loops[-1], f"{epoch} = 0")
    source.insert_before(statement, f"{epoch} += 1\n{name}.set_epoch({epoch})")
    return f"{name}.set_epoch before each pass"


def _sampler_of(source: Source, loader: Node) -> str | None:
    """The name of the sampler that a loader is made with in the same function."""
    made = value_of(source, loader)
    return _in_call(source, made) if made and source.scope(made) is source.scope(loader) else None


def _in_call(source: Source, made: Node) -> str | None:
    """The name of the sampler that a DataLoader is made with; None of anything else."""
    is_call = isinstance(made, cst.Call)
    sampler = argument(made, "sampler") or argument(made, "batch_sampler") if is_call else None
    return source.code(sampler.value) if sampler is not None and dotted(sampler.value) else None


def tell_epoch(source: Source, loop: Node, sampler: str = "", condition: str = "") -> str:
    """Call ``set_epoch`` before each pass of a loop over a DataLoader.

    Args:
        sampler: its name, where it is known to be readable there.
        condition: that there is one, where that is known.
    """
    around = epoch_loop(source, loop)
    loader = iterated(source, loop)
    name = sampler or _in_call(source, loader) or _of_value(source, loop, loader, around)
    _take_away(source, name, around)
    line = f"{name}.set_epoch({around.epoch()})"
    condition = condition or _condition(source, around.loop)
    if condition:
        line = f"if {condition}:\n\t{line}"
    if isinstance(loader, (cst.Name, cst.Attribute)) and not _is_made_inside(source, around):
        source.insert_first(around.loop, line)
    else:
        source.insert_before(around.inner, line)
    return f"{name}.set_epoch before each pass"


def _condition(source: Source, at: Node) -> str:
    """When there is a DistributedSampler, as may be asked for it here; empty where there always is one."""
    made = calls(source, "DistributedSampler")
    if not any(is_optional(source, call) or _is_either(source, call) for call in made) and (
        made or not may_lack_group(source)
    ):
        return ""
    for call in made:
        outer = source.enclosing(call, cst.If, cst.FunctionDef)
        if isinstance(outer, cst.If) and source.scope(call) is source.scope(at):
            test: str = source.code(outer.test)
            return test
    return has_group(source)


def _is_either(source: Source, call: Node) -> bool:
    """Whether it is made by a conditional expression."""
    return source.enclosing(call, cst.IfExp, cst.SimpleStatementLine).__class__ is cst.IfExp


def _kind(source: Source, loader: Node) -> str:
    """What a DataLoader has that is told the epoch: its ``batch_sampler`` where it was given one."""
    made = value_of(source, loader)
    loaders = [made] if isinstance(made, cst.Call) else calls(source, "DataLoader")
    given = loaders and all(argument(call, "batch_sampler") for call in loaders)
    return "batch_sampler" if given else "sampler"


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
    elif name := _in_call(source, _assigned_at(source, around)):
        return name
    return f"{around.loader}.{_kind(source, loader)}"


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
