"""Takes one backward of the sum of two losses."""

from __future__ import annotations

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.reading import is_method
from ddpdoctor.fix.source import Node, Source

cures = ("DD207",)
tells = True
changes = ("loss",)


def apply(case: Case) -> str:
    """Put both losses into the second backward."""
    source, statement = case.source, case.statement
    earlier = [other for other in source.before(statement) if _is_backward(other)]
    if not _is_backward(statement) or not earlier:
        raise CannotPatch("no other backward is beside it")
    terms = [_term(source, other.value.func.value) for other in (earlier[-1], statement)]
    source.replace(statement.value, f"({' + '.join(terms)}).backward()")
    source.delete(earlier[-1])
    return "one backward of both losses"


def _is_backward(statement: Node) -> bool:
    return isinstance(statement, ast.Expr) and is_method(statement.value, "backward")


def _term(source: Source, value: Node) -> str:
    code = source.code(value)
    return f"({code})" if isinstance(value, (ast.BinOp, ast.IfExp)) else code
