"""Lets DistributedDataParallel look for parameters that a forward does not use."""

from __future__ import annotations

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import argument
from ddpdoctor.fix.wrappers import wraps

_OPTION = "find_unused_parameters"


def apply(case: Case) -> str:
    """``find_unused_parameters=True`` in place of ``static_graph`` or of nothing."""
    changed = False
    for source, call in wraps(case):
        given, static = argument(call, _OPTION), argument(call, "static_graph")
        if static is not None and given is None:
            source.replace(static, f"{_OPTION}=True")
        elif given is None:
            source.add_argument(call, f"{_OPTION}=True")
        elif source.code(given.value) == "False":
            source.replace(given.value, "True")
        else:
            continue
        changed = True
    if not changed:
        raise CannotPatch(f"{_OPTION} is there already")
    return f"{_OPTION}=True"
