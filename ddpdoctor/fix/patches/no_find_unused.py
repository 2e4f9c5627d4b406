"""Takes find_unused_parameters away, which costs a walk through the graph in each forward."""

from __future__ import annotations

from ddpdoctor.fix.case import Case
from ddpdoctor.fix.wrapper_options import without


def apply(case: Case) -> str:
    """Wrap without ``find_unused_parameters``."""
    return without(case, "find_unused_parameters")
