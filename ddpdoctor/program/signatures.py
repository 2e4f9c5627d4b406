"""What a call gives, and what a function takes and returns, by syntax alone."""

from __future__ import annotations

import ast

from ddpdoctor.program import known
from ddpdoctor.program.files import Function, dotted, own_nodes


def name_called(call: ast.Call) -> str:
    """The last part of the name of the function, or of the method, that is called; empty where it has none."""
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def argument(call: ast.Call, position: int | None, name: str) -> ast.expr | None:
    """What a call gives as one parameter."""
    named = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
    if named is None and position is not None and position < len(call.args):
        return call.args[position]
    return named


def arguments(call: ast.Call) -> list[ast.expr]:
    """What a call is given that is no place for a value."""
    return [*call.args, *(it.value for it in call.keywords if it.arg not in known.PLACES)]


def returned(function: Function) -> list[ast.expr]:
    """What a function returns or yields."""
    found = (it.value for it in own_nodes(function) if isinstance(it, ast.Return | ast.Yield | ast.YieldFrom))
    return [value for value in found if value is not None]


def default_of(function: ast.AST, parameter: ast.AST) -> list[ast.expr]:
    """The default of a parameter; nothing where it has none."""
    arguments_of = getattr(function, "args", None)
    if not isinstance(arguments_of, ast.arguments):
        return []
    positional = [*arguments_of.posonlyargs, *arguments_of.args]
    pairs = [
        *zip(reversed(positional), reversed(arguments_of.defaults), strict=False),
        *zip(arguments_of.kwonlyargs, arguments_of.kw_defaults, strict=True),
    ]
    return [value for name, value in pairs if name is parameter and value is not None]


def is_static(function: Function) -> bool:
    """Whether it is a static method."""
    return any(dotted(it) == "staticmethod" for it in function.decorator_list)


def returns_its_object(call: ast.Call) -> bool:
    """Whether a method returns what it belongs to."""
    return isinstance(call.func, ast.Attribute) and call.func.attr in known.RETURNS_ITS_OBJECT
