"""Loads a checkpoint onto the CPU, whatever device it was saved from."""

from __future__ import annotations

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import argument


def apply(case: Case) -> str:
    """``map_location="cpu"`` for torch.load."""
    call = case.call("load")
    if argument(call, "map_location", 1):
        raise CannotPatch("it has a map_location already")
    case.source.add_argument(call, 'map_location="cpu"')
    return 'map_location="cpu"'
