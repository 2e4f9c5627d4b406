"""Divides an evaluation without padding, so that each sample counts once."""

from __future__ import annotations

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.passes import loops_over
from ddpdoctor.fix.reading import LOADER, SAMPLER, argument, dotted, means, rank, value_of, world_size

cures = ("DD501",)


def apply(case: Case) -> str:
    """Every world_size-th sample in place of a DistributedSampler."""
    source, loader = case.call_at(case.loader, LOADER)
    given = argument(loader, 3, "sampler")
    made = value_of(source, given) if given is not None else None
    if not isinstance(made, ast.Call) or not means(source, made.func, SAMPLER):
        raise CannotPatch("its DistributedSampler is made in another place")
    dataset = argument(made, 0, "dataset")
    if dataset is None or not dotted(dataset):
        raise CannotPatch("the dataset has no name")
    size, number = argument(made, 1, "num_replicas"), argument(made, 2, "rank")
    first = source.code(number) if number else rank(source, made, plain=True)
    step = source.code(size) if size else world_size(source, made, plain=True)
    part = f"range({first}, len({source.code(dataset)}), {step})"
    if loops_over(case, case.loader):
        shuffle = argument(made, 3, "shuffle")
        if shuffle is None or not dotted(shuffle):
            raise CannotPatch("its DistributedSampler also divides what is trained on")
        part = f"{source.code(made)} if {source.code(shuffle)} else {part}"
    source.replace(made, part)
    return "each sample of the evaluation once"
