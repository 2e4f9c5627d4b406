"""Saves and restores what a checkpoint goes on from besides the weights: optimizer, scheduler, scaler."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.wrappers import assigned_to, optimizers

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
    saved = _saved(source, load.key)
    if saved is None:
        raise CannotPatch("the checkpoint is not written in this file")
    entries = {
        source.code(entry.key): _owner(source, entry.value)
        for entry in saved.elements
        if isinstance(entry, cst.DictElement)
    }
    restored = [
        source.code(call)
        for call in source.all(cst.Call)
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == "load_state_dict"
    ]
    missing = {
        key: owner
        for key, owner in entries.items()
        if owner and key != load.key and not any(f"[{key}]" in code for code in restored)
    }
    if not missing:
        missing = _save_optimizer(source, saved, entries)
    for key, owner in missing.items():
        _restore(source, load, key, owner)
    return f"{', '.join(missing.values())} restored from the checkpoint"


def _load(case: Case) -> _Load:
    source = case.source
    for call in source.on_line(case.line, cst.Call):
        given = call.args[0].value if call.args else None
        is_load = isinstance(call.func, cst.Attribute) and call.func.attr.value == "load_state_dict"
        if is_load and isinstance(given, cst.Subscript):
            key = source.code(given.slice[0].slice)
            return _Load(source.statement(call), source.code(given.value), key)
    raise CannotPatch("the line does not restore weights from an entry of a checkpoint")


def _saved(source: Source, key: str) -> Node | None:
    """The dictionary that is written, with the entry of the weights."""
    for node in source.all(cst.Dict):
        keys = [source.code(entry.key) for entry in node.elements if isinstance(entry, cst.DictElement)]
        if key in keys:
            return node
    return None


def _owner(source: Source, value: Node) -> str:
    """``optimizer`` of ``optimizer.state_dict()``, or of the object itself; empty for anything else."""
    if isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute):
        return str(source.code(value.func.value)) if value.func.attr.value == "state_dict" else ""
    code = source.code(value)
    return code if any(word in code for word in ("optim", "sched", "scaler")) else ""


def _save_optimizer(source: Source, saved: Node, entries: dict[str, str]) -> dict[str, str]:
    made = optimizers(source)
    if not made:
        raise CannotPatch("no optimizer is made in this file")
    owner = source.code(assigned_to(source, made[0]))
    quote = next(iter(entries))[0]
    key = f"{quote}optimizer{quote}"
    if key in entries:
        raise CannotPatch("the optimizer is saved and restored already")
    end = source.span(saved.elements[-1])[1]
    source.replace_span(end, end, f", {key}: {owner}.state_dict()")
    return {key: owner}


def _restore(source: Source, load: _Load, key: str, owner: str) -> None:
    """Behind the statement that makes the object, or that restores the weights, whichever is later."""
    line = f"{owner}.load_state_dict({load.state}[{key}])"
    scope = source.scope(load.statement)
    later = [
        node
        for node in source.all(cst.SimpleStatementLine, within=scope)
        if source.code(node).startswith(f"{owner} = ") and source.line(node) > source.line(load.statement)
    ]
    if not later:
        source.insert_after(load.statement, line)
        return
    condition = source.enclosing(load.statement, cst.If, cst.FunctionDef)
    if isinstance(condition, cst.If):
        line = f"if {source.code(condition.test)}:\n\t{line}"
    source.insert_after(later[0], line)
