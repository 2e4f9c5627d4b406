"""Lets DistributedDataParallel broadcast the buffers of rank 0, as it does by default."""

from __future__ import annotations

from ddpdoctor.fix.case import Case
from ddpdoctor.fix.wrapper_options import without


def apply(case: Case) -> str:
    """Wrap without ``broadcast_buffers=False``."""
    return without(case, "broadcast_buffers")
