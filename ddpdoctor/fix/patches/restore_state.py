"""Saves and restores what a checkpoint goes on from besides the weights: optimizer, scheduler, scaler."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.reading import assigned_to, calls, is_method, optimizers
from ddpdoctor.fix.source import Node, Source

cures = ("DD405",)
after = ("resume_epoch",)


@dataclass(frozen=True)
class _Load:
    """Where the weights are restored."""

    statement: Node
    state: str
    """The variable of the checkpoint."""
    key: str
    """Of the weights in it, in its quotes."""


def apply(case: Case) -> str:
    """Load each state that is saved and not restored; save that of the optimizer where none is."""
    source, load = case.source, _load(case)
    saved = next((it for it in source.all(ast.Dict) if load.key in _entries(source, it)), None)
    if saved is None:
        raise CannotPatch("the checkpoint is not written in this file")
    entries = {key: _owner(source, value) for key, value in _entries(source, saved).items()}
    restored = " ".join(source.code(call) for call in calls(source, "load_state_dict"))
    missing = {
        key: owner
        for key, owner in entries.items()
        if owner and key != load.key and f"[{key}]" not in restored
    }
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
    made = optimizers(source)
    if not made:
        raise CannotPatch("no optimizer is made in this file")
    owner = assigned_to(source, made[0])
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
