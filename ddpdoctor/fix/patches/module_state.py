"""Saves the state of the module inside the wrapper, and loads it there."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.guards import module_of
from ddpdoctor.fix.names import dotted
from ddpdoctor.fix.wrappers import is_wrapped

cures = ("DD403", "DD407")
_METHODS = ("state_dict", "load_state_dict")


def apply(case: Case) -> str:
    """``model.module.state_dict()`` for the wrapper's own, and the same where it is loaded."""
    source = case.source
    changed = [
        call.func
        for call in source.all(cst.Call)
        if isinstance(call.func, cst.Attribute)
        and call.func.attr.value in _METHODS
        and dotted(call.func.value)
        and is_wrapped(source, call.func.value)
    ]
    if not any(name.attr.value == "state_dict" for name in changed):
        raise CannotPatch("no state of a wrapper is saved in this file")
    for name in changed:
        source.replace(name.value, module_of(source, source.code(name.value)))
    return "the state of model.module"
