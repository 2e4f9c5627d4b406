"""The patches: one file for each kind, which names the findings that it cures; ``arguments`` has a row for each patch
that only changes arguments of a call.

A file has ``cures``, the codes of the findings, and ``apply``. Where several patches may cure a finding, ``after``
names those that are tried before this one; the rest goes by name. ``changes`` says what a script computes otherwise
once it is cured: ``samples``, those that each rank trains on, or ``loss``, of the same batch. All else has to stay.
``tells`` says that what it changes is all of the fix, so that a finding shows that in place of its general words.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Collection, Mapping
from graphlib import TopologicalSorter
from types import MappingProxyType
from typing import Any

from ddpdoctor.fix.case import Case

_TABLE = "arguments"


@functools.cache
def patches() -> Mapping[str, Any]:
    """All patches by name, in the order in which they are tried."""
    names = [module.name for module in pkgutil.iter_modules(__path__) if module.name != _TABLE]
    files = {name: importlib.import_module(f"{__name__}.{name}") for name in names}
    every = {**files, **importlib.import_module(f"{__name__}.{_TABLE}").ROWS}
    order = TopologicalSorter({name: getattr(every[name], "after", ()) for name in sorted(every)})
    return MappingProxyType({name: every[name] for name in order.static_order()})


def patch_names(code: str) -> tuple[str, ...]:
    """The patches that may cure findings of a check, the preferred first."""
    return tuple(name for name, patch in patches().items() if code in patch.cures)


def may_change(codes: Collection[str]) -> frozenset[str]:
    """What a script may compute otherwise once findings of these checks are cured: ``samples``, ``loss``."""
    cure = [patch for patch in patches().values() if any(code in patch.cures for code in codes)]
    return frozenset(what for patch in cure for what in getattr(patch, "changes", ()))


def patch_of(name: str) -> Callable[[Case], str]:
    """The function of a patch: edits the sources of a case, and returns what it did, in a clause.

    It raises :class:`~ddpdoctor.fix.CannotPatch` where it cannot.
    """
    apply: Callable[[Case], str] = patches()[name].apply
    return apply
