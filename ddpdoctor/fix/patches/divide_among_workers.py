"""Divides what a rank streams among its DataLoader workers, or gives each worker a seed of its own."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import argument, callee, dotted, use
from ddpdoctor.fix.patches.divide_stream import divide, iterates
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.values import free

cures = ("DD108",)


def apply(case: Case) -> str:
    """By ``worker_init_fn`` where that seeds; else in the dataset's ``__iter__``."""
    source, loader = case.call_at(next(iter(case.loaders()), case.finding.where), "DataLoader")
    init = argument(loader, "worker_init_fn")
    if init is not None and _seed(source, dotted(init.value)):
        return "a seed of its own for each worker"
    source, method = iterates(case)
    loop = next(iter(source.all(cst.For, within=method)), None)
    if loop is None:
        raise CannotPatch("the dataset's __iter__ has no loop")
    info = use(source, "torch.utils.data.get_worker_info")
    worker, first, step = (free(source, loop, name) for name in ("worker", "first", "step"))
    part = f"({worker}.id, {worker}.num_workers) if {worker} else (0, 1)"
    source.insert_before(loop, f"{worker} = {info}()\n{first}, {step} = {part}")
    divide(source, loop, f"{first}, None, {step}")
    return "the stream divided among workers"


def _seed(source: Source, name: str | None) -> bool:
    """Seed by torch's own seed of the worker, which differs between workers and ranks."""
    seeds: list[Node] = [
        call
        for function in source.all(cst.FunctionDef)
        if function.name.value == name
        for call in source.all(cst.Call, within=function)
        if callee(source, call) in ("seed", "manual_seed") and call.args
    ]
    for call in seeds:
        source.replace(call.args[0].value, f"{use(source, 'torch.initial_seed')}() % 2**32")
    return bool(seeds)
