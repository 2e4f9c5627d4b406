"""Lines of the script that bring about what is noticed elsewhere; none where several lines may."""

import ast
from collections.abc import Iterable, Iterator, Mapping

from ddpdoctor.model import Where
from ddpdoctor.program import Expression, Program
from ddpdoctor.program.files import FUNCTIONS, own_nodes
from ddpdoctor.program.files import name_called as called_name
from ddpdoctor.program.known import GATHERING, gathers, is_schedule, parametrizes
from ddpdoctor.trace.lines import guarded_call, is_for_some_ranks
from ddpdoctor.trace.recording import Recording

_OF_ALL = ("range", "enumerate", "zip", "reversed", "items", "values", "keys", "children", "modules")
"""Loops over these take every part."""

_NO_SYNC = "no_sync"
_FLAG = "require_backward_grad_sync"
_ADDS = ("add_module", "register_module", "register_parameter")
"""Methods that give a module a part of a name."""
_MIXES = ("lerp_", "mul_", "copy_")
"""Methods of tensors that update an average in place."""
_MIX_ALL = ("_foreach_lerp_", "_foreach_mul_", "_foreach_copy_")
"""torch's functions that do so with many."""
_WEIGHTS = ("parameters", "named_parameters", "state_dict", "buffers", "named_buffers")
"""Methods of modules that give their weights."""
_MODULES = ("torch.nn.", "torchvision.models.", "timm.create_model")
_FUNCTIONS = ("torch.nn.functional.", "torch.nn.init.", "torch.nn.utils.")


def hyperparameter_set(script: str, name: str) -> Where | None:
    """The one line that sets a hyperparameter of parameter groups: ``group["lr"] = ...``, or makes its schedule."""
    program = Program.of(script)
    is_set = [
        target.where
        for target, _ in program.assigned()
        if isinstance(target.node, ast.Subscript)
        and getattr(target.node.slice, "value", None) == name
        and _is_group(target.inner(target.node.value))
    ]
    made = (it for it in program.every_call() if not is_set and name == "lr")
    return _one(is_set or [it.where for it in made if any(map(is_schedule, it.called))])


def _is_group(expression: Expression) -> bool:
    """Whether it is a parameter group of an optimizer."""
    nodes = (*ast.walk(expression.node), *(it.node for it in expression.made_of()))
    return any(isinstance(it, ast.Attribute) and it.attr == "param_groups" for it in nodes)


def part_assigned(script: str, keys: Iterable[str]) -> Where | None:
    """The one line that gives a module, which exists by then, the parts that hold these parameters."""
    names = {key: key.split(".") for key in keys}
    modules = {part for parts in names.values() for part in parts[:-1]}
    parameters = {parts[-1] for parts in names.values()}
    program = Program.of(script)
    calls = list(program.every_call())
    if "parametrizations" in modules:
        return _one(it.where for it in calls if any(map(parametrizes, it.called)))
    given = [it.where for it in calls if _added(it) in modules | parameters]
    given += [
        target.where
        for target, value in program.assigned()
        if _part(target) in (parameters if "torch.nn.Parameter" in value.classes else modules)
        and (_is_module(value) or _is_module(target.inner(target.node.value)))  # type: ignore[attr-defined]
        and not _makes_itself(target)
    ]
    return _one(given)


def _added(call: Expression) -> str:
    """The part that a call gives a module, by its name."""
    given = call.argument(0, "name") if call.method in _ADDS else None
    if "builtins.setattr" in call.called:
        given = call.argument(1, "name")
    return str(getattr(given.node, "value", "")) if given else ""


def _part(target: Expression) -> str:
    """``head`` of ``net.head``, or of ``net[2]`` of a Sequential."""
    node = target.node
    key = getattr(getattr(node, "slice", None), "value", "")
    return str(node.attr if isinstance(node, ast.Attribute) else key)


def _is_module(value: Expression) -> bool:
    return any(name.startswith(_MODULES) and not name.startswith(_FUNCTIONS) for name in value.classes)


def _makes_itself(target: Expression) -> bool:
    """Whether a constructor gives the part to its own object."""
    name = (target.where.function or "").rpartition(".")[2]
    return name == "__init__" and isinstance(getattr(target.node, "value", None), ast.Name)


def guarded_collective(script: str, recordings: Mapping[int, Recording]) -> Where | None:
    """The one line that calls on some ranks only what gathers from all of them."""
    every = Program.of(script).every_call()
    calls = (it for it in every if it.method in GATHERING or any(map(gathers, it.called)))
    return _one(it.where for it in calls if is_for_some_ranks(it.where, recordings))


def unfreezing(script: str) -> Where | None:
    """The one line that lets parameters be trained: ``requires_grad_(True)``, ``parameter.requires_grad = True``."""
    program = Program.of(script)
    calls = (it for it in program.every_call() if it.method == "requires_grad_")
    given = ((it.where, it.argument(0, "requires_grad")) for it in calls)
    lets = [where for where, value in given if value is None or _is_true(value.node)]
    assigned = ((target, value) for target, value in program.assigned() if _is_true(value.node))
    return _one([*lets, *(it.where for it, _ in assigned if getattr(it.node, "attr", "") == "requires_grad")])


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def guarded_update(script: str, recordings: Mapping[int, Recording]) -> Where | None:
    """The one line that updates an average of weights on some ranks only, or calls what does."""
    updates = {it.where for it in Program.of(script).every_call() if _mixes(it) or _is_given_model(it)}
    guarded = {guarded_call(it, recordings) or it for it in updates if is_for_some_ranks(it, recordings)}
    return _one(guarded)


def _mixes(call: Expression) -> bool:
    """Whether it changes in place what is made of a module's weights."""
    changed = call.argument(0, "self") if call.method in _MIX_ALL else None
    if call.method in _MIXES:
        changed = call.owner
    return changed is not None and is_of_weights(changed)


def is_of_weights(value: Expression) -> bool:
    """Whether a value is made of a module's parameters or buffers."""
    return any(it.method in _WEIGHTS for it in value.made_of())


def _is_given_model(call: Expression) -> bool:
    """Whether an object of a library takes the weights of a model: ``AveragedModel.update_parameters``."""
    given = call.argument(0, "model")
    owner = call.owner
    if call.method not in ("update", "update_parameters") or given is None or owner is None:
        return False
    return bool(owner.classes) and _is_module(given)


def sync_decision(backward: Where | None, script: str) -> Where | None:
    """The line that decides whether a backward averages: the condition around no_sync, or the flag that is set."""
    program = Program.of(script)
    around, others = program.contexts(backward) if backward is not None else ([], [])
    others = [context for context in others if _turns_off(context)]
    # Where the forward alone is in there, it is the only one.
    for context in (*filter(_turns_off, around), *(others if len(others) == 1 else ())):
        return next((_made_at(it) for it in context.choices()), context.where)
    sets = [target.where for target, _ in program.assigned() if target.is_attribute(_FLAG)]
    ahead = [it for it in sets if backward and program.is_ahead(it, backward)]
    return max(ahead, key=lambda it: it.line or 0) if ahead else _one(sets)


def _turns_off(context: Expression) -> bool:
    return any(it.method == _NO_SYNC for it in context.made_of())


def _made_at(test: Expression) -> Where:
    """The line of a condition; where it is a variable that is assigned once, that of the assignment."""
    values = test.values
    return values[0].where if len(values) == 1 and values[0] is not None else test.where


def _one(lines: Iterable[Where]) -> Where | None:
    """The line, where they are all the same one."""
    found = set(lines)
    return found.pop() if len(found) == 1 else None


def chosen_part(script: str) -> Where | None:
    """A line that calls one of several layers in a condition that is computed, or by an index that is."""
    program = Program.of(script)
    for file, definition in program.modules():
        methods = [it for it in definition.body if isinstance(it, FUNCTIONS)]
        forwards = [it for it in methods if it.name.startswith("forward")]
        called = {it for forward in forwards for it in program.loops.called_in(file, forward)}
        for method in (*forwards, *(it for it in methods if it in called)):
            for line in _chosen(method):
                return Where(file.path, line, f"{definition.name}.{method.name}")
    return None


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
