"""Takes one backward of the sum of two losses."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.source import Node, Source

cures = ("DD207",)


def apply(case: Case) -> str:
    """Put both losses into the second backward."""
    source, statement = case.source, case.statement
    second = _backward(statement)
    block = source.block(statement)
    earlier = [other for other in block[: block.index(statement)] if _backward(other) is not None]
    if second is None or not earlier:
        raise CannotPatch("no other backward is beside it")
    first = _backward(earlier[-1])
    assert first is not None
    both = f"({_term(source, first)} + {_term(source, second)}).backward()"
    source.replace(second, both)
    source.delete(earlier[-1])
    return "one backward of both losses"


def _backward(statement: Node) -> Node | None:
    """The call of backward that a statement is."""
    body = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    call = body.value if isinstance(body, cst.Expr) else None
    if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Attribute):
        return None
    return call if call.func.attr.value == "backward" else None


def _term(source: Source, call: Node) -> str:
    value = call.func.value
    code = source.code(value)
    return f"({code})" if isinstance(value, (cst.BinaryOperation, cst.IfExp)) and value.lpar else str(code)
