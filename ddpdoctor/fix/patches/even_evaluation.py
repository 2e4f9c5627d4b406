"""Divides an evaluation without padding, so that each sample counts once."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import argument, callee, dotted
from ddpdoctor.fix.passes import loops_over
from ddpdoctor.fix.values import rank, value_of, world_size

cures = ("DD501",)


def apply(case: Case) -> str:
    """Every world_size-th sample in place of a DistributedSampler."""
    place = next(iter(case.loaders()), case.finding.where)
    source, loader = case.call_at(place, "DataLoader")
    given = argument(loader, "sampler", 3)
    made = (value_of(source, given.value) or given.value) if given else None
    if not isinstance(made, cst.Call) or callee(source, made) != "DistributedSampler":
        raise CannotPatch("its DistributedSampler is made in another place")
    dataset = argument(made, "dataset", 0)
    if dataset is None or not dotted(dataset.value):
        raise CannotPatch("the dataset has no name")
    statement = source.statement(made)
    size, number = argument(made, "num_replicas", 1), argument(made, "rank", 2)
    first = source.code(number.value) if number else rank(source, statement, plain=True)
    step = source.code(size.value) if size else world_size(source, statement, plain=True)
    part = f"range({first}, len({source.code(dataset.value)}), {step})"
    if place is not None and loops_over(case, place):
        shuffle = argument(made, "shuffle", 3)
        if shuffle is None or dotted(shuffle.value) in (None, "True", "False"):
            raise CannotPatch("its DistributedSampler also divides what is trained on")
        part = f"{source.code(made)} if {source.code(shuffle.value)} else {part}"
    source.replace(made, part)
    return "each sample of the evaluation once"
