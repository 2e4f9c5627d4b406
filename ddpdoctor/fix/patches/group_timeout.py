"""Gives the process group the time that one rank works alone."""

from __future__ import annotations

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import argument, calls, use
from ddpdoctor.fix.values import value_of


def apply(case: Case) -> str:
    """A timeout of hours for ``init_process_group``."""
    for source in [case.source, *case.scripts]:
        inits = calls(source, "init_process_group")
        if not inits:
            continue
        for call in inits:
            given, timeout = argument(call, "timeout"), use(source, "datetime.timedelta") + "(hours=2)"
            if given is None:
                source.add_argument(call, f"timeout={timeout}")
            else:
                source.replace(value_of(source, given.value) or given.value, timeout)
        return "a timeout of two hours for the process group"
    raise CannotPatch("init_process_group is called in another file")
