"""Excuses: rules that spare something from a finding though no recorded fact proves that it is right.

An excuse is a value with a page. A check asks it last, where everything else speaks for a finding::

    if differs and not (is_off and SETTING_IS_OFF.spares("early_stop at train.py:41")):
        return self.fail(...)

``--verbose`` lists under the check which excuses it applied, and to what.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

from ddpdoctor.model import Evidence

_applied: ContextVar[list[Evidence] | None] = ContextVar("excuses", default=None)


@dataclass(frozen=True)
class Excuse:
    """One such rule."""

    name: str
    """As ``--verbose`` shows it: a clause that says why something may be right."""
    page: str
    """What it spares, why that may be right, and which bug it may hide."""

    def spares(self, what: str) -> Literal[True]:
        """Note that it is applied to something; a line, or what else a finding would have been about."""
        applied = _applied.get()
        entry = Evidence(f"excused: {what} ({self.name})")
        if applied is not None and entry not in applied:
            applied.append(entry)
        return True


@contextmanager
def noted() -> Iterator[list[Evidence]]:
    """The excuses that are applied inside."""
    applied: list[Evidence] = []
    token = _applied.set(applied)
    try:
        yield applied
    finally:
        _applied.reset(token)
