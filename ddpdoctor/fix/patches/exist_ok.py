"""Makes a folder that another rank may have made meanwhile."""

from __future__ import annotations

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import argument, qualified, use_module


def apply(case: Case) -> str:
    """``exist_ok=True``; ``os.makedirs`` in place of ``os.mkdir``, which knows no such option."""
    source, call = case.source, case.call("makedirs", "mkdir")
    if argument(call, "exist_ok"):
        raise CannotPatch("the folder may be there already")
    if qualified(source, call.func) == "os.mkdir":
        source.replace(call.func, f"{use_module(source, 'os')}.makedirs")
    source.add_argument(call, "exist_ok=True")
    return "exist_ok=True for the folder"
