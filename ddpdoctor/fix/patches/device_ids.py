"""Gives device_ids as a list, and only where there is a GPU."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import argument, use
from ddpdoctor.fix.wrappers import wraps

cures = ("DD224",)


def apply(case: Case) -> str:
    """``device_ids=[local_rank] if torch.cuda.is_available() else None``."""
    wrappers = [wrapper for recording in case.trace.recorded.values() for wrapper in recording.wrappers]
    if wrappers and not any(wrapper.failed for wrapper in wrappers):
        raise CannotPatch("it is not known which GPU is meant: the one of the module, or that of device_ids")
    changed = False
    for source, call in wraps(case):
        for name in ("device_ids", "output_device"):
            arg = argument(call, name)
            if arg is None or isinstance(arg.value, cst.IfExp) or source.code(arg.value) == "None":
                continue
            given = source.code(arg.value)
            value = f"[{given}]" if name == "device_ids" and not isinstance(arg.value, cst.List) else given
            source.replace(arg.value, f"{value} if {use(source, 'torch.cuda')}.is_available() else None")
            changed = True
    if not changed:
        raise CannotPatch("no device_ids are given")
    return "device_ids only where there is a GPU"
