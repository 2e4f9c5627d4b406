"""Lines of the script that bring about what is noticed elsewhere; none where several lines may."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeGuard

from ddpdoctor.model import Where
from ddpdoctor.trace.rank_guards import is_for_some_ranks
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.syntax import (
    FUNCTIONS,
    assigned_to,
    called_name,
    enclosing_function,
    lines,
    modules_of,
    own_nodes,
    parsed,
)

_NO_SYNC = "no_sync"
_FLAG = "require_backward_grad_sync"
_ADDS = ("setattr", "add_module", "register_module", "register_parameter")
_PARAMETRIZES = ("weight_norm", "spectral_norm", "orthogonal", "register_parametrization")
"""Functions of torch that put other parameters in the place of a module's own."""
_GATHERING = {
    *("get_model_state_dict", "get_optimizer_state_dict", "get_state_dict", "full_tensor"),
    *(
        "consolidate_state_dict",
        "barrier",
        "all_reduce",
        "all_gather",
        "all_gather_object",
        "all_gather_into_tensor",
    ),
    *("broadcast_object_list", "gather_object", "reduce_scatter"),
}
"""Functions and methods that every rank has to call, of torch.distributed and what is built on it."""
_ALSO_OF_OTHERS = ("broadcast", "gather", "reduce", "scatter")
"""Its functions whose names functools, tensors and data frames have too."""
_OF_DISTRIBUTED = re.compile(r"(?:dist|torch\.distributed)\.")
_SETTINGS = {"args", "cfg", "config", "opt", "options"}
"""What has attributes named like parts of a model, and is none."""
_SCHEDULE = re.compile(r"LR$|^get_\w*schedule")
"""What makes a learning-rate scheduler, of torch and of transformers."""
_UPDATE = re.compile(r"(?i)\bema|_ema|swa|averag|shadow|teacher|target|model|net\b")
"""In a call of something named update, of what averages weights: no meter and no progress bar."""
_MIXES = ("lerp_", "mul_", "copy_", "_foreach_lerp_", "_foreach_mul_")
"""What updates an average of weights in place."""


def hyperparameter_set(script: str, name: str) -> Where | None:
    """The one line that sets a hyperparameter of parameter groups: ``group["lr"] = ...``, or makes its schedule."""
    loops = (
        node for node in _nodes(script) if isinstance(node, ast.For) and "group" in ast.unparse(node.iter)
    )
    groups = {ast.unparse(part) for loop in loops for part in ast.walk(loop.target)}

    def sets(node: ast.AST) -> bool:
        return any(
            isinstance(target, ast.Subscript)
            and isinstance(target.slice, ast.Constant)
            and target.slice.value == name
            and ("group" in (base := ast.unparse(target.value)) or base in groups)
            for target in assigned_to(node)
        )

    def schedules(node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and _SCHEDULE.search(called_name(node)) is not None

    is_set = any(map(sets, _nodes(script)))
    return _only(script, schedules if name == "lr" and not is_set else sets)


def part_assigned(script: str, keys: Iterable[str]) -> Where | None:
    """The one line that gives a module, which exists by then, the parts that hold these parameters."""
    names = {key: key.split(".") for key in keys}
    modules = {part for parts in names.values() for part in parts[:-1]}
    parameters = {parts[-1] for parts in names.values()}

    def parametrizes(node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and called_name(node) in _PARAMETRIZES

    def gives(node: ast.AST) -> bool:
        call = node if isinstance(node, ast.Call) else getattr(node, "value", None)
        maker = called_name(call) if isinstance(call, ast.Call) else ""
        parts = modules | parameters if maker in ("Parameter", "register_parameter") else modules
        if isinstance(node, ast.Call) and maker in _ADDS:
            return any(isinstance(given, ast.Constant) and given.value in parts for given in node.args)
        return any(_is_part(target, parts) for target in assigned_to(node))

    return _only(script, parametrizes if "parametrizations" in modules else gives)


def guarded_collective(script: str, recordings: Mapping[int, Recording]) -> Where | None:
    """The one line that calls on some ranks only what gathers from all of them."""
    imports = (node for node in _nodes(script) if isinstance(node, ast.ImportFrom))
    of_torch = [node for node in imports if (node.module or "").startswith("torch.distributed")]
    imported = {alias.name for node in of_torch for alias in node.names}

    def gathers(node: ast.AST) -> bool:
        if not isinstance(node, ast.Call) or called_name(node) not in _ALSO_OF_OTHERS:
            return isinstance(node, ast.Call) and called_name(node) in _GATHERING
        function = ast.unparse(node.func)
        return function in imported or _OF_DISTRIBUTED.match(function) is not None

    guarded = [line for line in _lines(script, gathers) if is_for_some_ranks(line, recordings)]
    return guarded[0] if len(guarded) == 1 else None


def unfreezing(script: str) -> Where | None:
    """The one line that lets parameters be trained: ``requires_grad_(True)``, ``parameter.requires_grad = True``."""

    def lets(node: ast.AST) -> bool:
        if isinstance(node, ast.Call) and called_name(node) == "requires_grad_":
            return not node.args or _is_true(node.args[0])
        names = (getattr(target, "attr", "") for target in assigned_to(node))
        return isinstance(node, ast.Assign) and "requires_grad" in names and _is_true(node.value)

    return _only(script, lets)


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def guarded_update(script: str, recordings: Mapping[int, Recording]) -> Where | None:
    """The one line that updates an average of weights on some ranks only."""

    def updates(node: ast.AST) -> bool:
        is_update = isinstance(node, ast.Call) and "update" in called_name(node)
        return is_update and _UPDATE.search(ast.unparse(node)) is not None

    def mixes(node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and called_name(node) in _MIXES

    for wanted in (updates, mixes):
        if guarded := {line for line in _lines(script, wanted) if is_for_some_ranks(line, recordings)}:
            return guarded.pop() if len(guarded) == 1 else None
    return None


def sync_decision(backward: Where | None, script: str) -> Where | None:
    """The line that decides whether a backward averages: the condition around no_sync, or the flag that is set."""
    tree = parsed(backward.file) if backward is not None else None
    if backward is None or backward.line is None or tree is None:
        return None
    scope = enclosing_function(tree, backward.line)
    for node in own_nodes(scope):
        if isinstance(node, ast.With) and backward.line in lines(node):
            if contexts := _no_sync_of(node):
                return _decides(backward.file, contexts[0])
            calls = (call for item in node.items for call in ast.walk(item) if isinstance(call, ast.Call))
            called = {called_name(call) for call in calls}
            if helper := _in_helper(script, called):
                return helper
    around = [context for it in own_nodes(scope) if isinstance(it, ast.With) for context in _no_sync_of(it)]
    if len(around) == 1:  # the forward alone is in there
        return _decides(backward.file, around[0])
    ahead = [it.lineno for it in own_nodes(scope) if _sets_flag(it) and it.lineno < backward.line]
    return replace(backward, line=max(ahead), columns=None) if ahead else _only(script, _sets_flag)


def _in_helper(script: str, called: set[str]) -> Where | None:
    """The decision in a function that gives the context for a backward."""
    for file in modules_of(script):
        tree = parsed(file)
        for node in ast.walk(tree) if tree else ():
            if isinstance(node, FUNCTIONS) and node.name in called and _mentions_no_sync(node):
                choices = [part for part in own_nodes(node) if isinstance(part, ast.IfExp | ast.If)]
                inside = [part for part in choices if _mentions_no_sync(part)] or choices
                return _decides(file, inside[0] if inside else node)
    return None


def _decides(file: str, node: ast.expr | ast.stmt) -> Where:
    """The line of a choice; where it goes by a variable that its function assigns once, that of the assignment."""
    tree = parsed(file)
    assert tree is not None
    scope = enclosing_function(tree, node.lineno)
    test = getattr(node, "test", None)
    name = test.id if isinstance(test, ast.Name) else None
    assigned = (it for it in own_nodes(scope) if isinstance(it, ast.Assign) and name)
    made = [it.lineno for it in assigned if any(getattr(target, "id", "") == name for target in it.targets)]
    return Where(file, made[0] if len(made) == 1 else node.lineno, getattr(scope, "name", "<module>"))


def _sets_flag(node: ast.AST) -> TypeGuard[ast.Assign | ast.AugAssign]:
    return any(getattr(target, "attr", "") == _FLAG for target in assigned_to(node))


def _mentions_no_sync(node: ast.AST) -> bool:
    return any(getattr(part, "attr", "") == _NO_SYNC for part in ast.walk(node))


def _no_sync_of(block: ast.With) -> list[ast.expr]:
    return [item.context_expr for item in block.items if _mentions_no_sync(item)]


def _is_part(target: ast.expr, parts: set[str]) -> bool:
    """``net.head``, or ``model.module[2]`` of a Sequential; not what a module gives itself as ``self.head``."""
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        return str(target.slice.value) in parts and ".module" in ast.unparse(target)
    if not isinstance(target, ast.Attribute):
        return False
    base = getattr(target.value, "attr", getattr(target.value, "id", ""))
    return target.attr in parts and base not in {"self", *_SETTINGS}


def _only(script: str, wanted: Callable[[ast.AST], bool]) -> Where | None:
    chosen = list(_lines(script, wanted))
    return chosen[0] if len(chosen) == 1 else None


def _nodes(script: str) -> Iterator[ast.AST]:
    for file in modules_of(script):
        yield from ast.walk(parsed(file) or ast.Module([], []))


def _lines(script: str, wanted: Callable[[ast.AST], bool]) -> Iterator[Where]:
    """The lines of the script's files that have such a statement or expression."""
    for file in modules_of(script):
        tree = parsed(file)
        for node in ast.walk(tree) if tree else ():
            if isinstance(node, ast.stmt | ast.expr) and wanted(node):
                function = getattr(enclosing_function(tree, node.lineno), "name", "<module>") if tree else ""
                yield Where(file, node.lineno, function)
