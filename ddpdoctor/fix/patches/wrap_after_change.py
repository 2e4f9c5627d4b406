"""Moves the wrap behind what changes the model."""

from __future__ import annotations

import re

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.wrappers import assigned_to, wraps

cures = ("DD205", "DD206")


def apply(case: Case) -> str:
    """Wrap after the last statement that changes the model before its optimizer is made."""
    moved = [name for source, call in wraps(case) if (name := _move(source, call))]
    if not moved:
        raise CannotPatch("nothing changes the model between its wrap and its optimizer")
    return f"{moved[0]} wrapped after it is changed"


def _move(source: Source, call: Node) -> str | None:
    name = source.code(assigned_to(source, call))
    wrap = source.statement(call)
    changes = _changes(source, wrap, name)
    if not changes:
        return None
    inner, rest = call.args[0], source.code(call)[source.span(call.args[0])[1] - source.span(call)[0] :]
    rest = rest.replace(f"\n{source.margin(wrap)}", "\n")
    if source.code(inner.value) == name:
        source.delete(wrap)
    else:
        source.replace(call, source.code(inner.value))
    for statement in changes:
        for node in source.all(cst.Attribute, within=statement):
            if source.code(node) == f"{name}.module":
                source.replace(node, name)
    source.insert_after(changes[-1], f"{name} = {source.code(call.func)}({name}{rest}")
    return str(name)


def _changes(source: Source, wrap: Node, name: str) -> list[Node]:
    """The statements behind the wrap, up to the last that has to do with the model before training begins."""
    block = source.block(wrap)
    behind = block[block.index(wrap) + 1 :]
    end = next(
        (
            number
            for number, statement in enumerate(behind)
            if isinstance(statement, (cst.For, cst.While))
            or ".parameters()" in source.code(statement)
            or source.all(cst.Return, within=statement)
        ),
        len(behind),
    )
    about = [
        number
        for number, statement in enumerate(behind[:end])
        if re.search(rf"(?<![\w.]){re.escape(name)}\b", source.code(statement))
    ]
    return behind[: about[-1] + 1] if about else []
