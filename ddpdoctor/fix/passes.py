"""The loops over a DataLoader, and the loops over epochs around them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import calls, dotted
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.values import call_sites, free, parameter_of, passed, value_of
from ddpdoctor.model import Where

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

    def epoch(self) -> str:
        """The name of the epoch; where it has none, it is given one, and a ``while`` counts its passes.

        Raises:
            CannotPatch: the loop has no name for its number.
        """
        if isinstance(self.loop, cst.While):
            return _counted(self.loop) or self._count()
        target = self.loop.target
        if isinstance(target, (cst.Tuple, cst.List)):
            target = target.elements[0].value
        if not isinstance(target, cst.Name):
            raise CannotPatch(f"the loop at line {self.source.line(self.loop)} has no name for the epoch")
        if target.value != "_":
            name: str = target.value
            return name
        self.source.replace(target, "epoch")
        return "epoch"

    def _count(self) -> str:
        """Count the passes of a ``while`` in a new variable.

        Raises:
            CannotPatch: it tells a sampler its epoch, by a number that it has from elsewhere.
        """
        if calls(self.source, "set_epoch", within=self.loop):
            raise CannotPatch(f"the loop at line {self.source.line(self.loop)} calls set_epoch already")
        name = free(self.source, self.loop, "epoch")
        self.source.insert_before(self.loop, f"{name} = 0")
        self.source.insert_after(self.inner, f"{name} += 1")
        return name


def _counted(loop: Node) -> str | None:
    """The variable in which a ``while`` counts its epochs itself."""
    waiting = [loop.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, cst.AugAssign) and "epoch" in (dotted(node.target) or "").lower():
            return dotted(node.target)
        waiting += node.children
    return None


def _counts(loop: Node) -> bool:
    """Whether each round of a loop around a pass can have the number of an epoch."""
    if isinstance(loop, cst.While):
        return True
    if isinstance(loop.target, (cst.Tuple, cst.List)):
        return isinstance(loop.iter, cst.Call) and dotted(loop.iter.func) == "enumerate"
    return "epoch" in (dotted(loop.target) or "") or _is_numbered(loop.iter)


def _is_numbered(node: Node) -> bool:
    """Whether a loop over this has numbers: range, also behind a progress bar."""
    if isinstance(node, cst.Call) and dotted(node.func) in ("range", "trange", "count", "itertools.count"):
        return True
    return isinstance(node, cst.Call) and bool(node.args) and _is_numbered(node.args[0].value)


def iterated(source: Source, loop: Node) -> Node:
    """What a loop or a ``yield from`` iterates, behind ``enumerate``, progress bars and a second name for it."""
    loader = _behind_bars(loop.iter if isinstance(loop, cst.For) else loop.body[0].value.value.item)
    value = value_of(source, loader) if isinstance(loader, cst.Name) else None
    other = _behind_bars(value) if value is not None else None
    is_alias = other is not None and dotted(other) not in (None, dotted(loader))
    return other if is_alias and source.scope(other) is source.scope(loop) else loader


def _behind_bars(node: Node) -> Node:
    while (
        isinstance(node, cst.Call)
        and node.args
        and (dotted(node.func) or "").rpartition(".")[2]
        in (
            "enumerate",
            "tqdm",
            "iter",
            "track",
        )
    ):
        node = node.args[0].value
    return node


def epoch_loop(source: Source, loop: Node) -> EpochLoop:
    """The loop over epochs around a loop over a loader, in the same function or around its calls.

    Raises:
        CannotPatch: there is none.
    """
    around = find_epoch_loop(source, loop)
    if around is None:
        raise CannotPatch(f"no loop over epochs is found around line {source.line(loop)}")
    return around


def find_epoch_loop(source: Source, loop: Node) -> EpochLoop | None:
    """The same; None where there is none, as in a script that trains in one pass."""
    loader = iterated(source, loop)
    return next(_around(source, loop, loader, source.code(loader), _DEPTH), None)


def _around(source: Source, inner: Node, loader: Node, name: str, depth: int) -> Iterator[EpochLoop]:
    outer = source.enclosing(inner, cst.FunctionDef)
    loops = takewhile(lambda node: node is not outer, source.above(inner))
    for loop in loops:
        if isinstance(loop, (cst.For, cst.While)) and _counts(loop):
            yield EpochLoop(source, loop, inner, name)
            return
    if outer is None or not depth:
        return
    parameter = parameter_of(source, loader)
    for call in call_sites(source, outer):
        given = passed(source, call, outer, parameter[1]) if parameter else None
        there = source.code(given) if given is not None else _from_outside(source, name, call)
        yield from _around(source, source.statement(call), given or loader, there, depth - 1)


def _from_outside(source: Source, name: str, call: Node) -> str:
    """``trainer.loader`` for ``self.loader``, where ``trainer.epoch()`` is called."""
    if name.startswith("self.") and isinstance(call.func, cst.Attribute):
        return f"{source.code(call.func.value)}.{name.removeprefix('self.')}"
    return name


def loops_over(case: Case, loader: Where) -> list[tuple[Source, Node]]:
    """The loops of the run in which the DataLoader that was made at this line trained."""
    places: list[Where] = []
    for recording in case.trace.recorded.values():
        for pass_ in recording.training_passes:
            made = recording.loader(pass_.loader)
            if made and made.at and pass_.at and _same(made.at, loader) and pass_.at not in places:
                places.append(Where(pass_.at.file, pass_.at.line, pass_.at.function))
    loops = []
    for place in dict.fromkeys(places):
        source = case.project.source(place.file)
        chosen = [loop for loop in source.on_line(place.line, cst.For) if source.line(loop) == place.line]
        loops += [(source, loop) for loop in chosen[:1]]
    return loops


def _same(place: Where, other: Where) -> bool:
    return (place.file, place.line) == (other.file, other.line)
