"""Parts of a model that its inputs choose, in the script's files: experts by token, layers that are left out."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpdoctor.model import Where
from ddpdoctor.program import Program
from ddpdoctor.program.files import FUNCTIONS, own_nodes
from ddpdoctor.program.signatures import name_called as called_name

_OF_ALL = ("range", "enumerate", "zip", "reversed", "items", "values", "keys", "children", "modules")
"""Loops over these take every part."""


def chosen_part(script: str) -> Where | None:
    """A line that calls one of several layers in a condition that is computed, or by an index that is."""
    program = Program.of(script)
    for file, definition in program.modules():
        for method in _of_forward(definition):
            for line in _chosen(method):
                return Where(file.path, line, f"{definition.name}.{method.name}")
    return None


def _of_forward(definition: ast.ClassDef) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The methods named forward, and those that they call."""
    methods = {node.name: node for node in definition.body if isinstance(node, FUNCTIONS)}
    names = [name for name in methods if name.startswith("forward")]
    for name in names:  # which grows
        calls = (node for node in ast.walk(methods[name]) if isinstance(node, ast.Call))
        called = {called_name(call) for call in calls if _is_attribute_of_self(call.func)}
        names += [it for it in methods if it in called and it not in names]
    return [methods[name] for name in names]


def _chosen(method: ast.AST) -> Iterator[int]:
    for loop in (node for node in own_nodes(method) if isinstance(node, ast.For)):
        names = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
        scopes: list[ast.AST] = [
            node for node in own_nodes(loop) if isinstance(node, ast.If) and _is_computed(node.test)
        ]
        if isinstance(loop.iter, ast.Call) and called_name(loop.iter) not in _OF_ALL:
            scopes.append(loop)
        for scope in scopes:
            calls = (node for node in ast.walk(scope) if isinstance(node, ast.Call))
            yield from (call.lineno for call in calls if _is_one_of_several(call.func, names, loop))


def _is_computed(test: ast.expr) -> bool:
    """Whether it asks a function, or compares what one returned: not a setting of the model."""
    return any(
        isinstance(node, ast.Call) and called_name(node) not in ("len", "isinstance", "hasattr")
        for node in ast.walk(test)
    )


def _is_one_of_several(called: ast.expr, names: set[str], loop: ast.For) -> bool:
    """``self.experts[i](...)``, or ``expert(...)`` in a loop over ``self.experts``."""
    if isinstance(called, ast.Subscript):
        index = {node.id for node in ast.walk(called.slice) if isinstance(node, ast.Name)}
        return _is_attribute_of_self(called.value) and bool(index & names)
    over_parts = any(_is_attribute_of_self(node) for node in ast.walk(loop.iter))
    return isinstance(called, ast.Name) and called.id in names and over_parts


def _is_attribute_of_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
