"""Where values come from: assignments, what callers pass, the rank and the world size of the process group."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from ddpdoctor.fix.names import DIST, argument, callee, calls, dotted, imported, qualified, use
from ddpdoctor.fix.source import Node, Source

_ENVIRON = {"get_rank": "RANK", "get_world_size": "WORLD_SIZE"}


def rank(source: Source, at: Node, *, plain: bool = False) -> str:
    """The rank, as the file may write it here: its own variable, or a call.

    Args:
        plain: whether there is a process group wherever this runs; else it is 0 without one.
    """
    return _from_group(source, at, "get_rank", "" if plain else "0")


def world_size(source: Source, at: Node, *, plain: bool = False) -> str:
    """The number of ranks, as the file may write it here; ``plain`` as for :func:`rank`."""
    return _from_group(source, at, "get_world_size", "" if plain else "1")


def _from_group(source: Source, at: Node, function: str, alone: str) -> str:
    for target, value in assignments(source, at):
        name = dotted(target)
        if name and "." not in name and _is_from_group(source, value, function):
            return name
    if parameter := _passed_from_group(source, at, function):
        return parameter
    own_class = source.enclosing(at, cst.ClassDef)
    for node in source.all(cst.Assign, within=own_class) if own_class is not None else ():
        for target, value in pairs(node):
            name = dotted(target)
            if name and name.startswith("self.") and _is_from_group(source, value, function):
                return name
    for call in source.all(cst.Call):
        # A function of the script's own, which knows what to say of a single process.
        function_name = dotted(call.func) if callee(source, call) == function and not call.args else None
        if function_name and not (qualified(source, call.func) or "").startswith(f"{DIST}."):
            return f"{function_name}()"
    call = f"{use(source, f'{DIST}.{function}')}()"
    return f"({call} if {has_group(source)} else {alone})" if alone and may_lack_group(source) else call


def _passed_from_group(source: Source, at: Node, wanted: str) -> str | None:
    """The parameter for which a caller of this function passes its rank, or the number of ranks."""
    function = source.enclosing(at, cst.FunctionDef)
    if function is None:
        return None
    sites = call_sites(source, function)
    for number, parameter in enumerate(function.params.params):
        given = [value for site in sites if (value := passed(source, site, function, number)) is not None]
        if given and all(_is_from_group(source, value_of(source, v) or v, wanted) for v in given):
            name: str = parameter.name.value
            return name
    return None


def free(source: Source, at: Node, name: str) -> str:
    """A name for a new variable: this one, or one like it where the function has it already."""
    taken = {node.value for node in source.all(cst.Name, within=source.scope(at))}
    return next(other for other in (name, f"rank_{name}", f"new_{name}", f"{name}_2") if other not in taken)


def has_group(source: Source) -> str:
    """Whether there is a process group, as the file may write it."""
    return f"{use(source, f'{DIST}.is_initialized')}()"


def may_lack_group(source: Source) -> bool:
    """Whether the script initializes its process group under a condition: it also runs without, as a single process."""
    inits = calls(source, "init_process_group")
    return any(is_optional(source, call) for call in inits) if inits else source.may_lack_group


def is_optional(source: Source, node: Node, depth: int = 2) -> bool:
    """Whether a statement may be left out: by a condition, a return before it, or where its function is called."""
    function = source.enclosing(node, cst.FunctionDef)
    for parent in source.above(node):
        if parent is function:
            break
        if isinstance(parent, cst.If) and not _is_in_both(source, parent, node):
            return True
    if function is None:
        return False
    returns = source.all(cst.Return, within=function)
    if any(
        source.last_line(leave) < source.line(node) and source.scope(leave) is function for leave in returns
    ):
        return True
    sites = call_sites(source, function) if depth else []
    return bool(sites) and all(is_optional(source, site, depth - 1) for site in sites)


def _is_in_both(source: Source, condition: Node, node: Node) -> bool:
    """Whether both branches of a condition do the same, or it only asks for the main module."""
    test = source.code(condition.test)
    if "__name__" in test:
        return True
    function = node.func if isinstance(node, cst.Call) else None
    branches = [condition.body, *_else_of(condition)]
    return (
        function is not None
        and len(branches) > 1
        and all(
            any(
                source.code(call.func) == source.code(function)
                for call in source.all(cst.Call, within=branch)
            )
            for branch in branches
        )
    )


def _else_of(condition: Node) -> list[Node]:
    """The bodies of elif and else; empty without an else."""
    bodies, orelse = [], condition.orelse
    while isinstance(orelse, cst.If):
        bodies.append(orelse.body)
        orelse = orelse.orelse
    return [*bodies, orelse.body] if orelse is not None else []


def _is_from_group(source: Source, value: Node, function: str) -> bool:
    if isinstance(value, cst.Call) and callee(source, value) == "int" and value.args:
        read = rf"os\.(?:environ\[|environ\.get\(|getenv\().{_ENVIRON[function]}.(?:\]|(?:, ?[^()]+)?\))"
        return bool(re.fullmatch(read, source.code(value.args[0])))
    return (
        isinstance(value, cst.Call)
        and qualified(source, value.func) == f"{DIST}.{function}"
        and not value.args
    )


def assignments(source: Source, at: Node) -> Iterator[tuple[Node, Node]]:
    """Targets and values of the assignments whose names can be read here, the nearest first.

    Those of the same function that come before it, and those of the module's top level.
    """
    scope, line = source.scope(at), source.line(at)
    inside = list(reversed(source.all(cst.Assign, cst.AnnAssign, within=scope)))
    for node in inside:
        if source.scope(node) is scope and source.last_line(node) < line:
            yield from pairs(node)
    if scope is not source.tree:
        for node in reversed(source.all(cst.Assign, cst.AnnAssign)):
            if source.scope(node) is source.tree and not source.enclosing(node, cst.ClassDef):
                yield from pairs(node)


def pairs(node: Node) -> Iterator[tuple[Node, Node]]:
    """``a`` and ``x``, ``b`` and ``y`` of ``a, b = x, y``; ``(a, b)`` and ``x`` where it cannot be told apart."""
    if isinstance(node, cst.AnnAssign):
        if node.value is not None:
            yield node.target, node.value
        return
    for target in (target.target for target in node.targets):
        both = (cst.Tuple, cst.List)
        if isinstance(target, both) and isinstance(node.value, both):
            if len(target.elements) == len(node.value.elements):
                yield from (
                    (name.value, value.value)
                    for name, value in zip(target.elements, node.value.elements, strict=True)
                )
        else:
            yield target, node.value


def value_of(source: Source, expression: Node) -> Node | None:
    """What a variable or an attribute of ``self`` was assigned, as far as the file tells; None where it does not."""
    name = dotted(expression)
    if name is None:
        return None
    if name.startswith("self."):
        within = source.enclosing(expression, cst.ClassDef)
        every = (
            pair for node in source.all(cst.Assign, cst.AnnAssign, within=within) for pair in pairs(node)
        )
        return next((value for target, value in every if within and dotted(target) == name), None)
    return next((value for target, value in assignments(source, expression) if dotted(target) == name), None)


def parameter_of(source: Source, expression: Node) -> tuple[Node, int] | None:
    """The function of which a name is a parameter, and which one it is; None where it is none."""
    function = source.enclosing(expression, cst.FunctionDef)
    name = dotted(expression)
    if function is None or name is None:
        return None
    for number, parameter in enumerate(function.params.params):
        if parameter.name.value == name:
            return function, number
    return None


def call_sites(source: Source, function: Node, inside: Source | None = None) -> list[Node]:
    """The calls of a function or a method; those of the class for its ``__init__``.

    Args:
        inside: the file that calls it, where that is another one.
    """
    inside = inside or source
    around = source.enclosing(function, cst.FunctionDef, cst.ClassDef)
    of_class = around if isinstance(around, cst.ClassDef) else None
    name = function.name.value
    if of_class is None or name == "__init__":
        name = of_class.name.value if of_class is not None else name
        return [call for call in inside.all(cst.Call) if _is_call(inside, call, name)]
    return [call for call in inside.all(cst.Call) if _is_method(inside, call, name, of_class.name.value)]


def _is_call(source: Source, call: Node, name: str) -> bool:
    """Whether it calls a function by its name, or as that of a module: ``model.train()`` is no call of ``train``."""
    module, _, last = (dotted(call.func) or "").rpartition(".")
    return last == name and (not module or module.partition(".")[0] in imported(source))


def _is_method(source: Source, call: Node, name: str, of_class: str) -> bool:
    """Whether it calls a method, as far as it is known what that is called on."""
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value != name:
        return False
    owner = call.func.value
    made = owner if isinstance(owner, cst.Call) else value_of(source, owner)
    kind = callee(source, made) if isinstance(made, cst.Call) else ""
    return not kind[:1].isupper() or kind == of_class


def passed(source: Source, call: Node, function: Node, number: int) -> Node | None:
    """What a call passes for a parameter; None where it passes nothing."""
    parameter = function.params.params[number].name.value
    is_method = function.params.params[0].name.value in ("self", "cls")
    arg = argument(call, parameter, number - is_method)
    return arg.value if arg else None
