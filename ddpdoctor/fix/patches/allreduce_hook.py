"""Registers PyTorch's own communication hook, which averages."""

from __future__ import annotations

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.imports import use
from ddpdoctor.fix.reading import argument, passed
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.program.points import Entity

cures = ("DD228",)
_HOOKS = "torch.distributed.algorithms.ddp_comm_hooks.default_hooks"
_COMPRESSED = {"torch.bfloat16": "bf16_compress_hook", "torch.float16": "fp16_compress_hook"}
"""The hooks for what the script's own sends in place of 32 bits."""
_NAMED = (ast.Name, ast.Attribute)


def apply(case: Case) -> str:
    """``allreduce_hook`` in place of the script's own, or the one that compresses alike."""
    source, call = case.call_at(case.finding.where, "register_comm_hook")
    state, hook = (
        _given(source, argument(call, number, name)) for number, name in enumerate(("state", "hook"))
    )
    name = _averaging(source, hook)
    if state is not None:
        source.replace(state, "None")
    if hook is not None:
        source.replace(hook, use(source, f"{_HOOKS}.{name}"))
    return f"{name} of PyTorch, which averages"


def _given(source: Source, value: Node | None) -> Node | None:
    """What is registered; of a parameter, what its function is called with.

    Raises:
        CannotPatch: it is called more than once.
    """
    sites = passed(source, value) if value is not None else []
    if len(sites) > 1:
        raise CannotPatch(f"{source.code(value)} is another hook at each call of its function")
    return sites[0][2] if sites else value


def _averaging(source: Source, hook: Node | None) -> str:
    entities = source.program.flow.referents(source.point(hook)) if hook is not None else ()
    parts = [
        other.expression(node).names
        for entity in entities
        if isinstance(entity, Entity)
        for other in [source.project.source(entity.file.path)]
        for node in other.all(*_NAMED, within=entity.node)
    ]
    names = frozenset[str]().union(*parts)
    return next((name for kind, name in _COMPRESSED.items() if kind in names), "allreduce_hook")
