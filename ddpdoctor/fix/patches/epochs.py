"""The loops over epochs, with those over a DataLoader in them, or behind calls; samplers that are told the epoch."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.patches import patch
from ddpdoctor.fix.reading import LOADER, SAMPLER, argument, dotted
from ddpdoctor.fix.source import Node
from ddpdoctor.fix.writing import Source
from ddpdoctor.model import Where
from ddpdoctor.program.files import FUNCTIONS, LOOPS

_DEPTH = 3
"""Functions between the loop over a loader and the loop over epochs."""

_CYCLE = "itertools.cycle"


@patch("DD103")
def set_epoch(case: Case) -> str:
    """Call ``set_epoch`` where the loop over epochs begins, or where an iterator is begun anew.

    ``itertools.cycle`` keeps the batches of its first pass: a generator of epochs replaces it.
    """
    source, statement = case.source, case.statement
    for call in source.on_line(case.line, ast.Call):
        if source.means(call.func, _CYCLE):
            return _replace_cycle(source, call)
    value: Node = getattr(statement, "value", None)
    is_begun = isinstance(statement, ast.Assign) and isinstance(value, ast.Call)
    if is_begun and source.means(value.func, "builtins.iter") and value.args:
        return _count_iterators(source, statement, value.args[0])
    return tell_epoch(source, statement if isinstance(value, ast.YieldFrom) else case.loop)


def _replace_cycle(source: Source, call: Node) -> str:
    """A generator that goes through a loader again and again, and tells its sampler the epoch."""
    loader = call.args[0]
    if dotted(loader) is None:
        raise CannotPatch(f"the loader that line {call.lineno} cycles has no name")
    line = f"loader.{_kind(source, loader)}.set_epoch(epoch)"
    condition = _condition(source, source.tree)
    statement = f"if {condition}:\n\t\t\t{line}" if condition else line
    name = source.free(source.tree.body[0], "endless")
    count = _count_of(source, call)
    source.define(f"def {name}(loader):\n\tfor epoch in {count}():\n\t\t{statement}\n\t\tyield from loader")
    source.replace(call.func, name)
    return "a generator that calls set_epoch, in place of itertools.cycle"


def _count_of(source: Source, cycle: Node) -> str:
    """``itertools.count``, as the file may write it; in the import, it replaces ``cycle`` where that is used once."""
    uses = [node for node in source.all(ast.Name) if node.id == source.code(cycle.func)]
    aliases = [alias for node in source.file.imports for alias in node.names if alias.name == "cycle"]
    if len(uses) == len(aliases) == 1 and aliases[0].asname is None:
        source.replace(aliases[0], "count")
        return "count"
    return source.use("itertools.count")


def _count_iterators(source: Source, statement: Node, loader: Node) -> str:
    """Count the iterators of a loader, each of which is a pass, and tell its sampler before the next."""
    loops = [node for node in source.within_function(statement) if isinstance(node, LOOPS)]
    if not loops or dotted(loader) is None:
        raise CannotPatch(f"the passes that begin at line {statement.lineno} are in no loop")
    epoch = source.free(statement, "epoch")
    name = _sampler_of(source, loader) or f"{dotted(loader)}.{_kind(source, loader)}"
    source.insert_before(loops[-1], f"{epoch} = 0")
    source.insert_before(statement, f"{epoch} += 1\n{name}.set_epoch({epoch})")
    return f"{name}.set_epoch before each pass"


def _sampler_of(source: Source, loader: Node | None) -> str | None:
    """The name of the sampler that a loader is made with in the same function, or its attribute in the same class."""
    made = source.assigned(loader) if loader is not None else None
    name = _in_call(made) if made is not None else None
    kinds = (ast.ClassDef,) if name and name.startswith("self.") else (*FUNCTIONS, ast.Module)
    return name if name and source.enclosing(made, *kinds) is source.enclosing(loader, *kinds) else None


def _in_call(made: Node) -> str | None:
    """The name of the sampler that a DataLoader is made with; None of anything else."""
    is_call = isinstance(made, ast.Call)
    return dotted(argument(made, 3, "sampler") or argument(made, 4, "batch_sampler")) if is_call else None


def tell_epoch(source: Source, loop: Node, sampler: str = "", condition: str = "") -> str:
    """Call ``set_epoch`` before each pass of a loop over a DataLoader: of the sampler of this name, where one is known
    to be readable there; under a condition, where one is known, that there is one."""
    around, loader = epoch_loop(source, loop), iterated(source, loop)
    there = around.source
    name = sampler or _in_call(loader) or _of_value(source, loop, loader, around)
    _take_away(there, name, around)
    line = f"{name}.set_epoch({around.epoch()})"
    condition = condition or _condition(there, around.loop)
    if condition:
        line = f"if {condition}:\n\t{line}"
    if isinstance(loader, (ast.Name, ast.Attribute)) and not _is_made_inside(there, around):
        there.insert_first(around.loop, line)
    else:
        there.insert_before(around.inner, line)
    return f"{name}.set_epoch before each pass"


def _condition(source: Source, at: Node) -> str:
    """When there is a DistributedSampler, as may be asked for it here; empty where there always is one."""
    made = source.calls(SAMPLER)
    may_lack = any(
        source.is_optional(call) or isinstance(source.enclosing(call, ast.IfExp, ast.stmt), ast.IfExp)
        for call in made
    )
    if not may_lack and (made or not source.may_lack_group()):
        return ""
    for call in made:
        outer = next((it for it in source.within_function(call) if isinstance(it, ast.If)), None)
        if outer is not None and source.scope(call) is source.scope(at):
            return source.code(outer.test)
    return source.has_group()


def _kind(source: Source, loader: Node) -> str:
    """What a DataLoader has that is told the epoch: its ``batch_sampler`` where it was given one."""
    made = source.value_of(loader)
    loaders = [made] if isinstance(made, ast.Call) else source.calls(LOADER)
    given = loaders and all(argument(call, 4, "batch_sampler") for call in loaders)
    return "batch_sampler" if given else "sampler"


def _of_value(source: Source, loop: Node, loader: Node, around: EpochLoop) -> str:
    """The sampler of a variable; what a call returns is given a name."""
    if isinstance(loader, ast.Subscript) and not source.all(ast.Call, within=loader):
        return f"{source.code(loader)}.sampler"
    if not isinstance(loader, (ast.Name, ast.Attribute)):
        source.insert_before(source.statement(loop), f"loader = {source.code(loader)}")
        source.replace(loader, "loader")
        return "loader.sampler"
    there, given = around.source, around.given
    is_read_there = there.file.scopes.get(given) is there.scope(around.loop)
    name = _sampler_of(there, given) if is_read_there else None
    return name or f"{around.loader}.{_kind(source, loader)}"


def _is_made_inside(source: Source, around: EpochLoop) -> bool:
    """Whether the loader is assigned in the body of the loop over epochs."""
    made = source.all(ast.Assign, within=around.loop)
    return any(around.loader == source.code(target) for node in made for target in node.targets)


def _take_away(source: Source, name: str, around: EpochLoop) -> None:
    """A call that comes too late, or on one rank alone, goes."""
    for call in source.calls("set_epoch", within=around.loop):
        statement = source.statement(call)
        if source.code(call.func) == f"{name}.set_epoch" and len(source.block(statement)) > 1:
            source.delete(statement)


@dataclass(frozen=True)
class EpochLoop:
    """A loop over epochs, with the loop over a loader in it, or behind calls."""

    source: Source
    loop: Node
    """Over the epochs: a ``while``, or a ``for`` that counts."""
    inner: Node
    """The statement of its body that begins the pass: the loop over the loader, or a call."""
    loader: str
    """The loader, as its body may write it."""
    given: Node
    """It, as an expression of the file."""

    def epoch(self) -> str:
        """The name of the epoch; where it has none, it is given one, and a ``while`` counts its passes. CannotPatch
        where the loop has no name for its number."""
        if isinstance(self.loop, ast.While):
            return self._counted() or self._count()
        target = self.loop.target
        if isinstance(target, (ast.Tuple, ast.List)):
            target = target.elts[0]
        if not isinstance(target, ast.Name):
            raise CannotPatch(f"the loop at line {self.loop.lineno} has no name for the epoch")
        if target.id != "_":
            return target.id
        self.source.replace(target, "epoch")
        return "epoch"

    def _counted(self) -> str | None:
        """The variable in which a ``while`` counts its rounds itself: by one, beside the pass."""
        counts = [
            dotted(node.target)
            for node in self.loop.body
            if isinstance(node, ast.AugAssign)
            and isinstance(node.op, ast.Add)
            and isinstance(node.value, ast.Constant)
            and node.value.value == 1
        ]
        return counts[0] if len(counts) == 1 else None

    def _count(self) -> str:
        """Count the passes of a ``while`` in a new variable; CannotPatch where it tells a sampler its epoch, by a
        number that it has from elsewhere."""
        if self.source.calls("set_epoch", within=self.loop):
            raise CannotPatch(f"the loop at line {self.loop.lineno} calls set_epoch already")
        name = self.source.free(self.loop, "epoch")
        self.source.insert_before(self.loop, f"{name} = 0")
        self.source.insert_after(self.inner, f"{name} += 1")
        return name


def iterated(source: Source, loop: Node) -> Node:
    """What a loop or a ``yield from`` iterates, behind ``enumerate``, progress bars and a second name for it."""
    loader = source.behind_bars(loop.iter if isinstance(loop, ast.For) else loop.value.value)
    value = source.assigned(loader) if isinstance(loader, ast.Name) else None
    other = source.behind_bars(value) if value is not None else None
    is_alias = other is not None and dotted(other) not in (None, dotted(loader))
    return other if is_alias and source.scope(other) is source.scope(loop) else loader


def epoch_loop(source: Source, loop: Node) -> EpochLoop:
    """The loop over epochs around a loop over a loader, in its function or around its calls; else CannotPatch."""
    around = find_epoch_loop(source, loop)
    if around is None:
        raise CannotPatch(f"no loop over epochs is found around line {loop.lineno}")
    return around


def find_epoch_loop(source: Source, loop: Node) -> EpochLoop | None:
    """The same; None where there is none, as in a script that trains in one pass."""
    loader = iterated(source, loop)
    return next(_around(source, loop, loader, source.code(loader), _DEPTH), None)


def _around(source: Source, inner: Node, loader: Node, name: str, depth: int) -> Iterator[EpochLoop]:
    for loop in source.within_function(inner):
        if isinstance(loop, ast.While) or (isinstance(loop, ast.For) and _counts(source, loop)):
            yield EpochLoop(source, loop, inner, name, loader)
            return
    function = source.enclosing(inner, *FUNCTIONS)
    gives = {call: value for _, call, value in source.passed(loader)}
    for there, call in source.callers(function) if depth else ():
        given = gives.get(call)
        outside = there.code(given) if given is not None else _from_outside(there, name, call)
        yield from _around(there, there.statement(call), given or loader, outside, depth - 1)


def _counts(source: Source, loop: Node) -> bool:
    """Whether each round of a loop around a pass has a number."""
    if isinstance(loop.target, (ast.Tuple, ast.List)):
        return bool(source.calls("builtins.enumerate", within=loop.iter))
    return source.is_numbered(loop.iter)


def _from_outside(source: Source, name: str, call: Node) -> str:
    """``trainer.loader`` for ``self.loader``, where ``trainer.epoch()`` is called."""
    if name.startswith("self.") and isinstance(call.func, ast.Attribute):
        return f"{source.code(call.func.value)}.{name.removeprefix('self.')}"
    return name


def loops_over(case: Case, loader: Where | None) -> list[tuple[Source, Node]]:
    """The loops of the run in which the DataLoader that was made at this line trained."""
    places: dict[Where, None] = {}
    for recording in case.trace.recorded.values():
        for pass_ in recording.training_passes:
            made = recording.loader(pass_.loader)
            if made and made.at and pass_.at and loader and made.at.place == loader.place:
                places[Where(pass_.at.file, pass_.at.line, pass_.at.function)] = None
    loops = []
    for place in places:
        source = case.project.source(place.file)
        chosen = [loop for loop in source.on_line(place.line, *LOOPS) if loop.lineno == place.line]
        loops += [(source, loop) for loop in chosen[:1]]
    return loops
