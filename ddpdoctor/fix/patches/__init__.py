"""The patches, by what they are about: a function each, which names the findings that it cures; ``arguments`` has a row
for each that only changes arguments of a call.

Where several patches may cure a finding, ``after`` names those that are tried before this one; the rest goes by name.
``changes`` says what a script computes otherwise once it is cured: ``samples``, those that each rank trains on, or
``loss``, of the same batch. All else has to stay. A finding shows what its patch changes in place of its general words,
unless the patch ``leaves_choice``: there are other ways, and the script does not tell which is meant.
"""

import functools
import importlib
import pkgutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from types import MappingProxyType

from ddpdoctor.fix.case import Case


@dataclass(frozen=True)
class Patch:
    """A change that may cure the findings of some checks."""

    cures: tuple[str, ...]
    apply: Callable[[Case], str]
    """Edits the sources of a case, and returns what it did, in a clause.

    It raises :class:`~ddpdoctor.fix.CannotPatch` where it cannot.
    """
    after: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    leaves_choice: bool = False


def patch(
    *cures: str, after: tuple[str, ...] = (), changes: tuple[str, ...] = (), leaves_choice: bool = False
) -> Callable[[Callable[[Case], str]], Patch]:
    """Make a patch of a function; its name is that of the variable that holds it."""
    return lambda apply: Patch(cures, apply, after, changes, leaves_choice)


@functools.cache
def patches() -> Mapping[str, Patch]:
    """All patches by name, in the order in which they are tried."""
    modules = [importlib.import_module(f"{__name__}.{it.name}") for it in pkgutil.iter_modules(__path__)]
    every = {name: it for module in modules for name, it in vars(module).items() if isinstance(it, Patch)}
    order = TopologicalSorter({name: every[name].after for name in sorted(every)})
    return MappingProxyType({name: every[name] for name in order.static_order()})


def patch_names(code: str) -> tuple[str, ...]:
    """The patches that may cure findings of a check, the preferred first."""
    return tuple(name for name, it in patches().items() if code in it.cures)


def may_change(codes: Collection[str]) -> frozenset[str]:
    """What a script may compute otherwise once findings of these checks are cured: ``samples``, ``loss``."""
    cure = [it for it in patches().values() if not set(it.cures).isdisjoint(codes)]
    return frozenset(what for it in cure for what in it.changes)
