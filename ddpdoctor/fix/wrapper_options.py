"""Options of DistributedDataParallel that a patch takes away."""

from __future__ import annotations

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import argument
from ddpdoctor.fix.wrappers import wraps


def without(case: Case, option: str) -> str:
    """Wrap without an option.

    Raises:
        CannotPatch: no wrap has it.
    """
    given = [(source, call, arg) for source, call in wraps(case) if (arg := argument(call, option))]
    for source, call, arg in given:
        source.remove_argument(call, arg)
    if not given:
        raise CannotPatch(f"{option} is not among the arguments of the wrap")
    return f"the wrap without {option}"
