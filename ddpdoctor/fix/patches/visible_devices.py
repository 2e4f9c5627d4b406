"""Leaves the GPUs visible that the script hid."""

from __future__ import annotations

import re

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case

cures = ("DD801", "DD802")
_HIDES = re.compile(r"os\.environ\[.CUDA_VISIBLE_DEVICES.\] = ")


def apply(case: Case) -> str:
    """Take the assignment of CUDA_VISIBLE_DEVICES away."""
    source = case.source
    hides = [node for node in source.all(cst.SimpleStatementLine) if _HIDES.match(source.code(node))]
    if not hides:
        raise CannotPatch("CUDA_VISIBLE_DEVICES is not set in this file")
    for statement in hides:
        source.delete(statement)
    return "CUDA_VISIBLE_DEVICES left as it is"
