"""Lets DistributedSampler take the rank and the number of ranks from the process group."""

from __future__ import annotations

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import argument


def apply(case: Case) -> str:
    """Leave its rank and num_replicas out."""
    source, call = case.call_at(case.finding.where, "DistributedSampler")
    given = [arg for name in ("num_replicas", "rank") if (arg := argument(call, name))]
    if not given:
        raise CannotPatch("it is given neither rank nor num_replicas by name")
    source.remove_arguments(call, given)
    return "rank and number of ranks of the process group"
