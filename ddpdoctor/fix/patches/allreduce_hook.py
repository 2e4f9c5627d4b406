"""Registers PyTorch's own communication hook, which averages."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import argument, dotted, use
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.values import call_sites, parameter_of, passed

cures = ("DD228",)
_HOOKS = "torch.distributed.algorithms.ddp_comm_hooks.default_hooks"
_COMPRESSED = {"bfloat16": "bf16_compress_hook", "float16": "fp16_compress_hook"}
"""The hooks for what the script's own sends in place of 32 bits; ``bfloat16`` is looked for first."""


def apply(case: Case) -> str:
    """``allreduce_hook`` in place of the script's own, or the one that compresses alike."""
    source, call = case.call_at(case.finding.where, "register_comm_hook")
    state, hook = (
        _given(source, arg.value) if (arg := argument(call, name, position)) else None
        for position, name in enumerate(("state", "hook"))
    )
    name = _averaging(source, hook)
    if state is not None:
        source.replace(state, "None")
    if hook is not None:
        source.replace(hook, use(source, f"{_HOOKS}.{name}"))
    return f"{name} of PyTorch, which averages"


def _given(source: Source, value: Node) -> Node | None:
    """What is registered; of a parameter, what its function is called with.

    Raises:
        CannotPatch: it is called more than once.
    """
    parameter = parameter_of(source, value)
    if parameter is None:
        return value
    sites = call_sites(source, parameter[0])
    if len(sites) != 1:
        raise CannotPatch(f"{source.code(value)} is another hook at each call of {parameter[0].name.value}")
    return passed(source, sites[0], *parameter)


def _averaging(source: Source, hook: Node | None) -> str:
    functions = [node for node in source.all(cst.FunctionDef) if hook and node.name.value == dotted(hook)]
    code = "".join(map(source.code, functions))
    return next((name for kind, name in _COMPRESSED.items() if kind in code), "allreduce_hook")
