"""Lets a random sampler draw other samples on each rank."""

from __future__ import annotations

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.imports import use
from ddpdoctor.fix.reading import LOADER, argument, means, rank, value_of

cures = ("DD101",)
changes = ("samples",)
after = ("distributed_sampler",)
_SAMPLERS = tuple(f"torch.utils.data.{name}" for name in ("WeightedRandomSampler", "RandomSampler"))


def apply(case: Case) -> str:
    """A generator that is seeded by the rank."""
    source, loader = case.call_at(case.loader, LOADER)
    given = argument(loader, 3, "sampler")
    made = value_of(source, given) if given is not None else None
    if not isinstance(made, ast.Call) or not means(source, made.func, *_SAMPLERS):
        raise CannotPatch("its sampler is no random sampler of torch")
    if argument(made, None, "generator"):
        raise CannotPatch("its sampler has a generator already")
    statement = source.statement(made)
    seed = rank(source, statement)
    seed = seed[1:-1] if seed.startswith("(") else seed
    source.insert_before(statement, f"generator = {use(source, 'torch.Generator')}().manual_seed({seed})")
    source.add_argument(made, "generator=generator")
    return "a generator of each rank for its sampler"
