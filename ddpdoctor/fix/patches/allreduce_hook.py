"""Registers PyTorch's own communication hook, which averages."""

from __future__ import annotations

from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import argument, use

_HOOK = "torch.distributed.algorithms.ddp_comm_hooks.default_hooks.allreduce_hook"


def apply(case: Case) -> str:
    """``allreduce_hook`` in place of the script's own."""
    source, call = case.call_at(case.finding.where, "register_comm_hook")
    state, hook = argument(call, "state", 0), argument(call, "hook", 1)
    if state is not None:
        source.replace(state.value, "None")
    if hook is not None:
        source.replace(hook.value, use(source, _HOOK))
    return "allreduce_hook of PyTorch, which averages"
