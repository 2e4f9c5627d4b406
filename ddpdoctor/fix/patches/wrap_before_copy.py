"""Wraps before the model is copied, so that copies begin with the weights of rank 0."""

from __future__ import annotations

import re

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import dotted
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.wrappers import wraps

_COPIES = re.compile(r"copy|ema\b|averag", re.IGNORECASE)


def apply(case: Case) -> str:
    """Move the wrap right behind the statement that makes the model."""
    for source, call in wraps(case):
        first = _first_use(source, call)
        if first is not None:
            wrap = source.statement(call)
            source.insert_before(first, source.reindented(wrap, ""))
            source.delete(wrap)
            return "the model wrapped before it is copied"
    raise CannotPatch("the model is not used before its wrap")


def _first_use(source: Source, call: Node) -> Node | None:
    name = dotted(call.args[0].value) if call.args else None
    wrap = source.statement(call)
    before = source.block(wrap)[: source.block(wrap).index(wrap)]
    if name is None:
        return None
    used = [
        statement
        for statement in before
        if re.search(rf"(?<![\w.]){re.escape(name)}\b", source.code(statement))
        and _COPIES.search(source.code(statement))
    ]
    return used[0] if used else None
