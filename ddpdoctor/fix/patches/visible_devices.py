"""Leaves the GPUs visible that the script hid."""

from __future__ import annotations

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.patches.group_of_launcher import set_variables

cures = ("DD801", "DD802")


def apply(case: Case) -> str:
    """Take the assignment of CUDA_VISIBLE_DEVICES away."""
    source = case.source
    hides = set_variables(source, "CUDA_VISIBLE_DEVICES")
    if not hides:
        raise CannotPatch("CUDA_VISIBLE_DEVICES is not set in this file")
    for statement in hides:
        source.delete(statement)
    return "CUDA_VISIBLE_DEVICES left as it is"
