"""Finds the checks: every file of the package ``ddpdoctor.checks``, and the entry points of other packages."""

import importlib
import importlib.metadata
import importlib.util
import pkgutil
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from pathlib import Path

from ddpdoctor.check import Check
from ddpdoctor.model import Source

ENTRY_POINTS = "ddpdoctor.checks"
"""The entry point group by which an installed package adds :class:`~ddpdoctor.check.Check` classes."""

_SOURCES = {source.value: source for source in Source}
_WORDS = {
    **{source: source.method for source in (Source.HOST, Source.GROUP)},
    Source.CODE: "ddpdoctor.unreached",
}
"""What stands in the files of all checks of a source, where those are few of all."""


class UnknownSelector(ValueError):
    """A selector names no check."""


def all_checks() -> tuple[Check, ...]:
    """Every check there is, ordered by code. Raises ValueError where two claim one code."""
    return _checks_with("")


@cache
def _checks_with(word: str) -> tuple[Check, ...]:
    """The checks whose file has a word in it, and those of other packages: importing all takes a tenth of a second."""
    checks: dict[str, Check] = {}
    others = (entry.load() for entry in importlib.metadata.entry_points(group=ENTRY_POINTS))
    for kind in (*_bundled(word), *others):
        if kind.code in checks:
            other = type(checks[kind.code]).__module__
            raise ValueError(f"{kind.__module__} and {other} both claim {kind.code}")
        checks[kind.code] = _made(kind)
    return tuple(checks[code] for code in sorted(checks))


def by_code(code: str) -> Check | None:
    """The check with this code or name, in any case of letters."""
    wanted = code.lower()
    every = chain.from_iterable(map(_checks_with, (_WORDS[Source.CODE], "")))
    return next((check for check in every if wanted in (check.code.lower(), check.name)), None)


def by_exception(exception: str) -> Check | None:
    """The check whose problem ends in this exception, given as ``Type: message``; None where no check knows it."""
    return next((check for check in all_checks() if check.is_raised_as(exception)), None)


def by_cause(kind: type) -> Check:
    """The check that tells of causes of this type, of :mod:`ddpdoctor.blame.causes`; a test holds that each has one."""
    return next(check for check in all_checks() if kind in check.causes)


@cache
def _made(kind: type[Check]) -> Check:
    return kind()


def _bundled(word: str) -> Iterator[type[Check]]:
    package = importlib.import_module("ddpdoctor.checks")
    for module in pkgutil.walk_packages(package.__path__, "ddpdoctor.checks."):
        spec = importlib.util.find_spec(module.name) if word else None
        if spec and word.encode() not in Path(str(spec.origin)).read_bytes():
            continue
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, Check) and value.__module__ == module.name:
                yield value


def matches(check: Check, source: Source, selector: str) -> bool:
    """Whether a selector, a code or its beginning (``DD2``), name, family, or source, means this way of looking."""
    lowered = selector.lower()
    return check.code.lower().startswith(lowered) or lowered in (check.name, check.family.value, source.value)


def select(source: Source, selected: Sequence[str] = (), ignored: Sequence[str] = ()) -> tuple[Check, ...]:
    """The checks that look at ``source`` and are wanted: all, or those selected, less those ignored."""
    meant = [it for it in selected if _SOURCES.get(it.lower(), source) is source]
    if selected and not meant:
        return ()
    return tuple(
        check
        for check in _checks_with(_WORDS.get(source, ""))
        if source in check.sources()
        and (not selected or any(matches(check, source, selector) for selector in meant))
        and not any(matches(check, source, selector) for selector in ignored)
    )


def verify_selectors(selectors: Sequence[str]) -> None:
    """Refuse a selector by which no check, name, family or source goes: raises UnknownSelector."""
    for selector in (it for it in selectors if it.lower() not in _SOURCES):
        if not any(matches(check, source, selector) for check in all_checks() for source in check.sources()):
            raise UnknownSelector(f"unknown check {selector!r}; `ddpdoctor checks` lists them")
