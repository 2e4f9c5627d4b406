"""The loops over a DataLoader, and the loops over epochs around them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.reading import dotted
from ddpdoctor.fix.source import Node
from ddpdoctor.fix.writing import Source
from ddpdoctor.model import Where
from ddpdoctor.program.files import FUNCTIONS, LOOPS

_DEPTH = 3
"""Functions between the loop over a loader and the loop over epochs."""


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
        """The name of the epoch; where it has none, it is given one, and a ``while`` counts its passes.

        Raises:
            CannotPatch: the loop has no name for its number.
        """
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
        """Count the passes of a ``while`` in a new variable.

        Raises:
            CannotPatch: it tells a sampler its epoch, by a number that it has from elsewhere.
        """
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
    """The loop over epochs around a loop over a loader, in the same function or around its calls.

    Raises:
        CannotPatch: there is none.
    """
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
            if made and made.at and pass_.at and loader and _same(made.at, loader):
                places[Where(pass_.at.file, pass_.at.line, pass_.at.function)] = None
    loops = []
    for place in places:
        source = case.project.source(place.file)
        chosen = [loop for loop in source.on_line(place.line, *LOOPS) if loop.lineno == place.line]
        loops += [(source, loop) for loop in chosen[:1]]
    return loops


def _same(place: Where, other: Where) -> bool:
    return (place.file, place.line) == (other.file, other.line)
