"""Saves the state of the module inside the wrapper, and loads it there."""

from __future__ import annotations

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.reading import calls, dotted, is_wrapped
from ddpdoctor.fix.writing import module_of

cures = ("DD403", "DD407")
tells = True


def apply(case: Case) -> str:
    """``model.module.state_dict()`` for the wrapper's own, and the same where it is loaded."""
    source = case.source
    called = [call.func for call in calls(source, "state_dict", "load_state_dict")]
    changed = [it for it in called if dotted(it) and is_wrapped(source, it.value)]
    if not any(name.attr == "state_dict" for name in changed):
        raise CannotPatch("no state of a wrapper is saved in this file")
    for name in changed:
        source.replace(name.value, module_of(source, source.code(name.value)))
    return "the state of model.module"
