"""What is saved, restored, and gone on from."""

import ast
from dataclasses import dataclass

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.patches import patch
from ddpdoctor.fix.patches.epochs import epoch_loop
from ddpdoctor.fix.reading import dotted, is_method
from ddpdoctor.fix.source import Node
from ddpdoctor.fix.writing import Source


@patch("DD403", "DD407")
def module_state(case: Case) -> str:
    """``model.module.state_dict()`` for the wrapper's own, and the same where it is loaded."""
    source = case.source
    called = [call.func for call in source.calls("state_dict", "load_state_dict")]
    changed = [it for it in called if dotted(it) and source.is_wrapped(it.value)]
    if not any(name.attr == "state_dict" for name in changed):
        raise CannotPatch("no state of a wrapper is saved in this file")
    for name in changed:
        source.replace(name.value, source.module_of(source.code(name.value)))
    return "the state of model.module"


@dataclass(frozen=True)
class _Load:
    """Where the weights are restored."""

    statement: Node
    state: str
    """The variable of the checkpoint."""
    key: str
    """Of the weights in it, in its quotes."""


@patch("DD405", after=("resume_epoch",))
def restore_state(case: Case) -> str:
    """Load each state (optimizer, scheduler, scaler) that is saved only; save the optimizer's where none is."""
    source, load = case.source, _load(case)
    saved = next((it for it in source.all(ast.Dict) if load.key in _entries(source, it)), None)
    if saved is None:
        raise CannotPatch("the checkpoint is not written in this file")
    entries = {key: _owner(source, value) for key, value in _entries(source, saved).items()}
    restored = " ".join(source.code(call) for call in source.calls("load_state_dict"))
    others = {key: owner for key, owner in entries.items() if owner and key != load.key}
    missing = {key: owner for key, owner in others.items() if f"[{key}]" not in restored}
    if not missing:
        missing = _save_optimizer(source, saved, entries)
    for key, owner in missing.items():
        _restore(source, load, key, owner)
    return f"{', '.join(missing.values())} restored from the checkpoint"


def _load(case: Case) -> _Load:
    source = case.source
    for call in source.on_line(case.line, ast.Call):
        given = call.args[0] if call.args else None
        if is_method(call, "load_state_dict") and isinstance(given, ast.Subscript):
            return _Load(source.statement(call), source.code(given.value), source.code(given.slice))
    raise CannotPatch("the line does not restore weights from an entry of a checkpoint")


def _entries(source: Source, saved: Node) -> dict[str, Node]:
    pairs = zip(saved.keys, saved.values, strict=True)
    return {source.code(key): value for key, value in pairs if key is not None}


def _owner(source: Source, value: Node) -> str:
    """``optimizer`` of ``optimizer.state_dict()``, or of the object itself; empty for anything else."""
    if is_method(value, "state_dict"):
        return source.code(value.func.value)
    types = source.program.flow.types(source.point(value))
    is_stateful = any(str(it).startswith(("torch.optim.", "torch.amp.", "torch.cuda.amp.")) for it in types)
    return source.code(value) if is_stateful else ""


def _save_optimizer(source: Source, saved: Node, entries: dict[str, str]) -> dict[str, str]:
    made = source.optimizers()
    if not made:
        raise CannotPatch("no optimizer is made in this file")
    owner = source.assigned_to(made[0])
    quote = next(iter(entries))[0]
    key = f"{quote}optimizer{quote}"
    if key in entries:
        raise CannotPatch("the optimizer is saved and restored already")
    end = source.span(saved.values[-1])[1]
    source.replace_span(end, end, f", {key}: {owner}.state_dict()")
    return {key: owner}


def _restore(source: Source, load: _Load, key: str, owner: str) -> None:
    """Behind the statement that makes the object, or that restores the weights, whichever is later."""
    line = f"{owner}.load_state_dict({load.state}[{key}])"
    later = [
        node
        for node in source.all(ast.Assign, within=source.scope(load.statement))
        if source.code(node.targets[0]) == owner and node.lineno > load.statement.lineno
    ]
    if not later:
        source.insert_after(load.statement, line)
        return
    condition = next((it for it in source.within_function(load.statement) if isinstance(it, ast.If)), None)
    if condition is not None:
        line = f"if {source.code(condition.test)}:\n\t{line}"
    source.insert_after(later[0], line)


@patch("DD405", after=("out_of_rank_guard",))
def resume_epoch(case: Case) -> str:
    """Begin the loop over epochs with the one that is read; where it does, with the next."""
    source = case.source
    if case.loop.lineno != case.line:
        raise CannotPatch("the line is no loop")
    around = epoch_loop(source, case.loop)
    source, loop = around.source, around.loop
    counted: Node = loop.iter if isinstance(loop, ast.For) else None
    is_range = source.is_call_of(counted, "builtins.range")
    read = _read(source)
    if not is_range or read is None:
        raise CannotPatch("the epoch of the checkpoint is not assigned in this file")
    name = source.code(read.targets[0])
    if len(counted.args) == 1:
        source.replace(counted.args[0], f"{name}, {source.code(counted.args[0])}")
        return f"the epochs from {name} on"
    source.replace(read.value, f"{source.code(read.value)} + 1")
    return "the epoch behind the one that was done"


def _read(source: Source) -> Node | None:
    """The only number of a checkpoint that is assigned, and no state that is loaded."""
    found = [
        node
        for node in source.all(ast.Assign)
        if isinstance(node.value, ast.Subscript)
        and any(source.is_call_of(made, "torch.load") for made in source.values_of(node.value.value))
    ]
    return found[0] if len(found) == 1 else None
