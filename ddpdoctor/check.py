"""What a check is: one problem, one class, one file under ``checks/``."""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import wraps
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias, TypeVar

from ddpdoctor.failures import Message
from ddpdoctor.frameworks import Framework
from ddpdoctor.model import (
    Confidence,
    Evidence,
    Family,
    Finding,
    Findings,
    Judgement,
    Kind,
    Level,
    Passed,
    Role,
    Sighting,
    Skipped,
    Source,
    Subject,
    Where,
)
from ddpdoctor.page import read_page
from ddpdoctor.text import by_state

__all__ = (
    "REINSTALL_TORCH", "Check", "Confidence", "Evidence", "Family", "Finding", "Findings", "Judgement", "Kind", "Level",
    "NotMeasured", "Passed", "Role", "Sighting", "Skipped", "Source", "Subject", "Where", "reports",
)  # fmt: skip
"""What a check is written with: its base, what it says, and what it says it with."""

REINSTALL_TORCH = "pip install --force-reinstall torch    # and look for packages that replace parts of torch"
"""The fix where torch itself does something wrong."""

_Wording: TypeAlias = Callable[[Any, Any], Finding]
_Fact = TypeVar("_Fact")


class NotMeasured(Exception):
    """Facts that a check asks for are not there; ends the check as :class:`~ddpdoctor.model.Skipped` does."""

    def __init__(self, reason: str, *, cut_short: bool = False) -> None:
        super().__init__(reason)
        self.skipped = Skipped(reason, cut_short)


def reports(kind: type) -> Callable[[_Wording], _Wording]:
    """Mark a method of a check as the one that words a cause of a hang, a type in :mod:`ddpdoctor.blame.causes`.

    What the cause tells of ranks goes into the finding, that of line and states where the method does not say it.
    """

    def mark(method: _Wording) -> _Wording:
        @wraps(method)
        def report(check: Check, cause: Any) -> Finding:
            finding = method(check, cause)
            return replace(
                finding,
                ranks=cause.culprits or cause.waiting,
                where=finding.where or cause.where,
                evidence=finding.evidence or cause.states,
                confidence=cause.confidence,
            )

        report.reported_cause = kind  # type: ignore[attr-defined]
        return report

    return mark


class Check:
    """One problem, and every way to detect it.

    A subclass implements one or more of ``examine_host(host)``, ``examine_group(ranks)``,
    ``examine_run(trace)``, ``examine_log(log)`` and ``examine_code(lines)``: pure functions from facts to a
    :data:`~ddpdoctor.model.Judgement`. Its docstring is its documentation, with the sections of
    :data:`~ddpdoctor.page.SECTIONS`.
    """

    code: ClassVar[str]
    """``DD`` and three digits; given once, never reused."""
    name: ClassVar[str]
    """The kebab-case name that users read beside the code; a bundled check's is that of its file."""
    family: ClassVar[Family]
    """A bundled check's is that of its folder."""
    title: ClassVar[str]
    """What is true where nothing is wrong; the line of a skipped check is this, a colon and the reason."""
    measurements: ClassVar[tuple[str, ...]] = ()
    """The measurements of the live group that ``examine_group`` reads: names of modules in ``group/measure``."""
    breaks_group: ClassVar[bool] = False
    """Whether a failure found on the host explains why the live group fails; one cause, one finding."""
    messages: ClassVar[tuple[Message, ...]] = ()
    """What libraries say of this problem in a job's output. A check without ``examine_log`` reports them by their rows,
    and ``raises`` are their patterns where it is not given."""
    raises: ClassVar[tuple[str, ...]] = ()
    """Regular expressions, matched anywhere in ``Type: message``, for the exceptions in which this problem ends. This
    check reports such an exception, with the rank and the line, and *rank-failed-first* does not."""
    explained_by: ClassVar[tuple[str, ...]] = ()
    """Codes of checks whose findings may cause those of this check; see :func:`ddpdoctor.judge.explains`."""
    fix_with: ClassVar[Mapping[Framework, str]] = MappingProxyType({})
    """What to type where a framework made the wrapper, in place of a finding's ``fix``, which is for plain torch."""
    timed: ClassVar[bool] = False
    """Whether it judges how long something took. Another run of the same script may take another time, as the load of
    the machine changes, so one run of a changed script shows neither that a change brings such a finding nor that it
    cures it."""
    names_no_cause_in: ClassVar[tuple[Source, ...]] = ()
    """Sources from which this check reports only how ranks ended, or what they waited for. Where a script breaks, a
    cause in its output replaces such a finding."""
    causes: ClassVar[Mapping[type, Callable[..., Finding]]] = MappingProxyType({})
    """The causes of a hang that this check reports, each with the method that :func:`reports` marked."""
    unreached: ClassVar[tuple[Callable[[Any], Iterable[Any]], str] | None] = None
    """What looks for this problem in the lines that no rank ran, and the headline of what it finds, with the words of a
    sight in braces. A check without ``examine_code`` reports that."""
    log_words: ClassVar[tuple[str, ...]] = ()
    """Words without digits; ``examine_log`` gets the lines of a job's output that have one of any check's, or a word of
    the patterns in ``messages`` and ``raises``. Exceptions and ends of processes are read without them."""

    def __init_subclass__(cls) -> None:
        """Collect what :func:`reports` marked, and name a bundled check by its folder and file."""
        super().__init_subclass__()
        own: Any = cls
        *package, file = cls.__module__.split(".")
        if package[:2] == ["ddpdoctor", "checks"] and package[2:]:
            family = package[2]
            cls.family = vars(cls).get("family", Family(family))
            cls.name = vars(cls).get("name", file.replace("_", "-"))
        if cls.messages:
            cls.raises = vars(cls).get("raises", tuple(message.pattern for message in cls.messages))
            own.examine_log = getattr(cls, "examine_log", lambda check, log: log.by_messages(check))
        if cls.unreached:
            own.examine_code = getattr(cls, "examine_code", lambda check, lines: lines.judge(check))
        marked = {kind: it for it in vars(cls).values() if (kind := getattr(it, "reported_cause", None))}
        cls.causes = {**cls.causes, **marked}

    @classmethod
    def sources(cls) -> tuple[Source, ...]:
        """The sources this check can look at, in the order of :class:`~ddpdoctor.model.Source`."""
        return tuple(source for source in Source if callable(getattr(cls, source.method, None)))

    @classmethod
    def is_raised_as(cls, exception: str) -> bool:
        """Whether an exception, as ``Type: message``, is one in which this problem ends."""
        return any(re.search(pattern, exception) for pattern in cls.raises)

    @classmethod
    def page(cls) -> str:
        """The check's documentation: its docstring without indentation."""
        return _in_source(cls) if sys.flags.optimize > 1 else inspect.getdoc(cls) or ""

    @staticmethod
    def require(fact: _Fact | None, otherwise: str) -> _Fact:
        """A fact without which this check has nothing to say. Raises NotMeasured, with ``otherwise`` as its clause,
        where it is missing, empty or false."""
        if not fact:
            raise NotMeasured(otherwise)
        return fact

    def report(self, cause: Any) -> Finding:
        """The finding for a cause of a hang, of one of the types in :attr:`causes`."""
        return self.causes[type(cause)](self, cause)

    def fail(self, headline: str, **details: Any) -> Finding:
        """A finding of this check that changes the exit status to 1; ``details`` are the other fields of Finding.

        ``why`` and ``fix`` may be left out where the page says the same in *Why it matters* and *Fix*. ``evidence`` may
        have texts, or be the text of each rank. ``ranks`` may be left out where they are those of the evidence.
        """
        return _finding(self, Level.FAIL, headline, details)

    def warn(self, headline: str, **details: Any) -> Finding:
        """The same, for a finding that ``--fail-on fail`` lets pass."""
        return _finding(self, Level.WARN, headline, details)

    def info(self, headline: str, **details: Any) -> Finding:
        """The same, for a finding that never changes the exit status."""
        return _finding(self, Level.INFO, headline, details)


def _finding(check: Check, level: Level, headline: str, details: dict[str, Any]) -> Finding:
    for field, section in (("why", "Why it matters"), ("fix", "Fix")):
        if field not in details:
            details[field] = read_page(check.page()).section(section)
    details["evidence"] = _evidence(details.get("evidence", ()))
    details.setdefault("ranks", tuple(sorted({rank for it in details["evidence"] for rank in it.ranks})))
    return Finding(check.code, level, headline, **details)


def _evidence(given: Iterable[Evidence | str] | Mapping[int, str]) -> tuple[Evidence, ...]:
    if isinstance(given, Mapping):
        return by_state(given)
    return tuple(Evidence(entry) if isinstance(entry, str) else entry for entry in given)


def _in_source(cls: type) -> str:
    """The docstring as it stands in the file: ``python -OO`` keeps none in memory."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(definition, ast.ClassDef)
    return ast.get_docstring(definition) or ""
