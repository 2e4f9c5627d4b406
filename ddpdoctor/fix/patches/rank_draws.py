"""Lets a random sampler draw other samples on each rank."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import argument, callee, use
from ddpdoctor.fix.values import rank, value_of

cures = ("DD101",)
after = ("distributed_sampler",)


def apply(case: Case) -> str:
    """A generator that is seeded by the rank."""
    source, loader = case.call_at(next(iter(case.loaders()), case.finding.where), "DataLoader")
    given = argument(loader, "sampler", 3)
    made = value_of(source, given.value) or given.value if given else None
    if not isinstance(made, cst.Call) or callee(source, made) not in (
        "WeightedRandomSampler",
        "RandomSampler",
    ):
        raise CannotPatch("its sampler is no random sampler of torch")
    if argument(made, "generator"):
        raise CannotPatch("its sampler has a generator already")
    statement = source.statement(made)
    seed = rank(source, statement)
    seed = seed[1:-1] if seed.startswith("(") else seed
    generator = f"{use(source, 'torch.Generator')}().manual_seed({seed})"
    source.insert_before(statement, f"generator = {generator}")
    source.add_argument(made, "generator=generator")
    return "a generator of each rank for its sampler"
