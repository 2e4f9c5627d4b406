"""The patches: one file for each kind, found by its name, which a check gives in ``Check.patches``."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from ddpdoctor.fix.case import Case


def patch_of(name: str) -> Callable[[Case], str]:
    """The function of a patch: edits the sources of a case, and returns what it did, in a clause.

    It raises :class:`~ddpdoctor.fix.CannotPatch` where it cannot.
    """
    module = importlib.import_module(f"{__name__}.{name}")
    apply: Callable[[Case], str] = module.apply
    return apply
