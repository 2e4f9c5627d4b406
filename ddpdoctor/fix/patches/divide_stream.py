"""Divides a stream among ranks, or among the workers of a rank; or gives each worker a seed of its own."""

from __future__ import annotations

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.imports import use
from ddpdoctor.fix.reading import LOADER, argument, calls, dotted, free, rank, world_size
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.program.files import FUNCTIONS
from ddpdoctor.program.points import Entity

cures = ("DD102", "DD108")
changes = ("samples",)


def apply(case: Case) -> str:
    """Take every world_size-th of what the dataset iterates; of what its rank has, each worker its part."""
    source, loader = case.call_at(case.loader, LOADER)
    if case.finding.code == "DD108":
        init = argument(loader, None, "worker_init_fn")
        if init is not None and _seed(source, init):
            return "a seed of its own for each worker"
        return _among_workers(*_iterates(source, loader))
    source, method = _iterates(source, loader)
    for call in calls(source, "itertools.islice", within=method):
        texts = [source.code(arg) for arg in call.args]
        if len(texts) == 4 and texts[3].endswith(".num_workers"):
            first = f"first = {rank(source, call)} * {texts[3]} + {texts[1]}"
            step = f"step = {world_size(source, call)} * {texts[3]}"
            source.insert_before(source.statement(call), f"{first}\n{step}")
            source.replace(call.args[1], "first")
            source.replace(call.args[3], "step")
            return "the stream divided among ranks and workers"
    loop = _loop(source, method)
    _divide(source, loop, f"{rank(source, loop)}, None, {world_size(source, loop)}")
    return "the stream divided among ranks"


def _among_workers(source: Source, method: Node) -> str:
    loop, info = _loop(source, method), use(source, "torch.utils.data.get_worker_info")
    worker, first, step = (free(source, loop, name) for name in ("worker", "first", "step"))
    part = f"({worker}.id, {worker}.num_workers) if {worker} else (0, 1)"
    source.insert_before(loop, f"{worker} = {info}()\n{first}, {step} = {part}")
    _divide(source, loop, f"{first}, None, {step}")
    return "the stream divided among workers"


def _loop(source: Source, method: Node) -> Node:
    loops = source.all(ast.For, within=method)
    if not loops:
        raise CannotPatch("the dataset's __iter__ has no loop")
    return loops[0]


def _divide(source: Source, loop: Node, slice_: str) -> None:
    """Let a loop take a slice of what it iterates."""
    source.replace(loop.iter, f"{use(source, 'itertools.islice')}({source.code(loop.iter)}, {slice_})")


def _iterates(source: Source, loader: Node) -> tuple[Source, Node]:
    """The ``__iter__`` of the dataset of a DataLoader.

    Raises:
        CannotPatch: the program does not define it.
    """
    dataset = argument(loader, 0, "dataset")
    types = source.program.flow.types(source.point(dataset)) if dataset is not None else ()
    for of_class in (it for it in types if isinstance(it, Entity)):
        for method in of_class.node.body:
            if isinstance(method, FUNCTIONS) and method.name == "__iter__":
                return source.project.source(of_class.file.path), method
    raise CannotPatch("the program does not define how the dataset iterates")


def _seed(source: Source, init: Node) -> bool:
    """Seed by torch's own seed of the worker, which differs between workers and ranks."""
    names = [dotted(init)]
    functions = [node for node in source.all(*FUNCTIONS) if node.name in names]
    seeds = calls(
        source, "random.seed", "numpy.random.seed", "torch.manual_seed", within=functions or ast.Pass()
    )
    for call in seeds:
        source.replace(call.args[0], f"{use(source, 'torch.initial_seed')}() % 2**32")
    return bool(seeds)
