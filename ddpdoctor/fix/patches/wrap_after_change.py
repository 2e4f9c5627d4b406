"""Moves the wrap behind what changes the model."""

from __future__ import annotations

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.reading import assigned_to, calls, dotted
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.program.files import LOOPS

cures = ("DD205", "DD206")


def apply(case: Case) -> str:
    """Wrap after the last statement that changes the model before its optimizer is made."""
    moved = [name for source, call in case.wraps() if (name := _move(source, call))]
    if not moved:
        raise CannotPatch("nothing changes the model between its wrap and its optimizer")
    return f"{moved[0]} wrapped after it is changed"


def _move(source: Source, call: Node) -> str | None:
    name, wrap = assigned_to(source, call), source.statement(call)
    changes = _changes(source, wrap, name)
    if not changes:
        return None
    inner = call.args[0]
    rest = source.text[source.span(inner)[1] : source.span(call)[1]].replace(f"\n{source.margin(wrap)}", "\n")
    if source.code(inner) == name:
        source.delete(wrap)
    else:
        source.replace(call, source.code(inner))
    for node in source.all(ast.Attribute, within=changes):
        if source.code(node) == f"{name}.module":
            source.replace(node, name)
    source.insert_after(changes[-1], f"{name} = {source.code(call.func)}({name}{rest}")
    return name


def _changes(source: Source, wrap: Node, name: str) -> list[Node]:
    """The statements behind the wrap, up to the last that has to do with the model before training begins."""
    behind, last = source.behind(wrap), 0
    for number, statement in enumerate(behind):
        is_end = isinstance(statement, LOOPS) or calls(source, "parameters", within=statement)
        if is_end or source.all(ast.Return, within=statement):
            break
        if any(dotted(it) == name for it in source.all(ast.Name, ast.Attribute, within=statement)):
            last = number + 1
    return behind[:last]
