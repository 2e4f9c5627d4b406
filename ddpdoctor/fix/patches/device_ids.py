"""Gives device_ids as a list, and only where there is a GPU."""

from __future__ import annotations

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.imports import use
from ddpdoctor.fix.reading import argument

cures = ("DD224",)


def apply(case: Case) -> str:
    """``device_ids=[local_rank] if torch.cuda.is_available() else None``."""
    wrappers = [wrapper for recording in case.trace.recorded.values() for wrapper in recording.wrappers]
    if wrappers and not any(wrapper.failed for wrapper in wrappers):
        raise CannotPatch("it is not known which GPU is meant: the one of the module, or that of device_ids")
    changed = False
    for source, call in case.wraps():
        for name in ("device_ids", "output_device"):
            given = argument(call, None, name)
            code = source.code(given) if given is not None else "None"
            if isinstance(given, ast.IfExp) or code == "None":
                continue
            value = f"[{code}]" if name == "device_ids" and not isinstance(given, ast.List) else code
            source.replace(given, f"{value} if {use(source, 'torch.cuda')}.is_available() else None")
            changed = True
    if not changed:
        raise CannotPatch("no device_ids are given")
    return "device_ids only where there is a GPU"
