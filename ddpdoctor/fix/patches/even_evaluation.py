"""Divides an evaluation without padding, so that each sample counts once."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import argument, callee, dotted, rank, value_of, world_size


def apply(case: Case) -> str:
    """Every world_size-th sample in place of a DistributedSampler."""
    source, loader = case.call_at(next(iter(case.loaders()), case.finding.where), "DataLoader")
    given = argument(loader, "sampler", 3)
    made = (value_of(source, given.value) or given.value) if given else None
    if not isinstance(made, cst.Call) or callee(source, made) != "DistributedSampler":
        raise CannotPatch("its DistributedSampler is made in another place")
    dataset = argument(made, "dataset", 0)
    if dataset is None or not dotted(dataset.value):
        raise CannotPatch("the dataset has no name")
    statement = source.statement(made)
    part = f"range({rank(source, statement)}, len({source.code(dataset.value)}), {world_size(source, statement)})"
    source.replace(made, part)
    return "each sample of the evaluation once"
