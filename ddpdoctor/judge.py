"""Runs checks over facts and puts what they say into the vocabulary of the report."""

from __future__ import annotations

import re
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ddpdoctor import __version__
from ddpdoctor.check import Check, NotMeasured
from ddpdoctor.excuses import noted
from ddpdoctor.failures import Message
from ddpdoctor.memory import uncollected
from ddpdoctor.model import (
    CheckResult,
    Confidence,
    Evidence,
    Finding,
    Judgement,
    Level,
    Outcome,
    Passed,
    Report,
    Skipped,
    Source,
)
from ddpdoctor.redact import escape
from ddpdoctor.silence import note_of
from ddpdoctor.text import plural, ranks_phrase

_LEVELS = tuple(Level)
_SOURCES = tuple(Source)


def of_message(check: Check, message: Message, match: re.Match[str], details: Mapping[str, Any]) -> Finding:
    """The finding of a check whose message was found, with its fields: ranks, where, evidence."""
    groups = {name: escape(value or "") for name, value in match.groupdict().items()}
    groups |= {name: ranks_phrase(details["ranks"], f"a {name}") for name in ("rank", "process")}
    texts = {"why": message.why.format_map(groups), "fix": message.fix}
    return check.fail(
        message.headline.format_map(groups),
        confidence=Confidence.LIKELY if message.likely else Confidence.CERTAIN,
        **{field: text for field, text in texts.items() if text},
        **details,
    )


@dataclass(frozen=True)
class Verdict:
    """What one check said of one source."""

    check: Check
    source: Source
    findings: tuple[Finding, ...] = ()
    passed: Passed | None = None
    reason: str | None = None
    """Why the check was skipped or broke; None otherwise."""
    cut_short: bool = False
    """Whether it was skipped since the run was cut short."""
    broke: bool = False
    seconds: float = 0.0
    causes: tuple[str, ...] = ()
    """Codes of the findings that explained those which were dropped from this verdict."""
    excused: tuple[Evidence, ...] = ()
    """The excuses that were applied, and to what."""

    @property
    def code(self) -> str:
        """The check's."""
        return self.check.code

    @property
    def failed(self) -> bool:
        """Whether one of the findings is a failure."""
        return any(finding.level is Level.FAIL for finding in self.findings)

    @property
    def names_cause(self) -> bool:
        """Whether what the check finds there is a cause, or more of it than how ranks ended."""
        return self.source not in self.check.names_no_cause_in

    def with_each(self, change: Callable[[Finding], Finding]) -> Verdict:
        """The verdict with each of its findings changed."""
        return replace(self, findings=tuple(map(change, self.findings)))

    def without(self, dropped: Iterable[Finding], cause: str) -> Verdict:
        """The verdict less these findings, which a finding with the code ``cause`` explains."""
        gone = {id(finding) for finding in dropped}
        left = tuple(finding for finding in self.findings if id(finding) not in gone)
        return replace(self, findings=left, causes=(*self.causes, cause)) if gone else self


@dataclass(frozen=True)
class Merged:
    """The verdicts of all sources as a report tells them."""

    results: tuple[CheckResult, ...]
    """One for each check, ordered by code."""
    findings: tuple[Finding, ...]
    """In order of blame: the root cause first."""
    silenced: tuple[Finding, ...] = ()
    """What the user does not want to hear of."""


def judge(
    source: Source, checks: Iterable[Check], facts: Any, on_error: Callable[[str], None]
) -> list[Verdict]:
    """Ask each check about the facts of one source, as its ``examine_*`` methods take them; ``on_error`` is given the
    traceback of a check that broke."""
    with uncollected():
        return [_judge_one(source, check, facts, on_error) for check in checks]


def judge_further(
    source: Source,
    checks: Iterable[Check],
    facts: Any,
    on_error: Callable[[str], None],
    verdicts: Iterable[Verdict],
) -> list[Verdict]:
    """As :func:`judge`, of more facts of a source; what the verdicts have found at a line is told once."""
    known = {_code_and_line(finding) for verdict in verdicts for finding in verdict.findings}
    return [
        replace(verdict, findings=tuple(it for it in verdict.findings if _code_and_line(it) not in known))
        for verdict in judge(source, checks, facts, on_error)
    ]


def _code_and_line(finding: Finding) -> tuple[object, ...]:
    return finding.code, finding.where and (finding.where.file, finding.where.line)


def _judge_one(source: Source, check: Check, facts: Any, on_error: Callable[[str], None]) -> Verdict:
    start = time.perf_counter()
    try:
        with noted() as excused:
            verdict = _verdict(check, source, getattr(check, source.method)(facts))
    except NotMeasured as missing:
        verdict = _verdict(check, source, missing.skipped)
    except Exception as broken:  # noqa: BLE001 - a check that breaks is an outcome, and the others still count
        verdict = Verdict(check, source, reason=f"{type(broken).__name__}: {broken}", broke=True)
        on_error(f"{check.code} {source.method} broke:\n{traceback.format_exc()}")
    findings = tuple(_advised(check, finding, facts) for finding in verdict.findings)
    seconds = time.perf_counter() - start
    return replace(verdict, findings=findings, excused=tuple(excused), seconds=seconds)


def _advised(check: Check, finding: Finding, facts: Any) -> Finding:
    """The finding with a fix in the words of the framework that set up training, where one did."""
    fix = check.fix_with.get(facts.framework) if check.fix_with and hasattr(facts, "framework") else None
    return replace(finding, fix=fix) if fix else finding


def settled(judgement: Judgement) -> Passed | Skipped | list[Finding]:
    """What a check says, in the end: its findings, and what else it says only where there are none. Raises NotMeasured
    where it cannot say."""
    said = [judgement] if isinstance(judgement, Finding | Passed | Skipped) else list(judgement)
    other = next((it for it in said if not isinstance(it, Finding)), None)
    findings = [it for it in said if isinstance(it, Finding)]
    return findings if findings or other is None else other


def _verdict(check: Check, source: Source, judgement: Judgement) -> Verdict:
    said = settled(judgement)
    if isinstance(said, Skipped):
        return Verdict(check, source, reason=said.reason, cut_short=said.cut_short)
    if isinstance(said, Passed):
        return Verdict(check, source, passed=said)
    return Verdict(check, source, findings=tuple(said))


def skip_all(source: Source, checks: Iterable[Check], reason: str) -> list[Verdict]:
    """The verdicts where a source could not be looked at, for one reason."""
    return [Verdict(check, source, reason=reason) for check in checks]


def explains(cause: Finding, symptom: Finding, codes: Iterable[str]) -> bool:
    """Whether one finding is the cause of another, which is then dropped: one cause, one finding.

    The cause's code has to be one of ``codes``, those that the symptom or its check names. Where both findings say
    what they are about in terms of the same kind (a path, a DataLoader), they have to share a subject. Where no kind
    is common to both, the cause explains every symptom of that code: a hang is the whole job's.
    """
    if cause.code not in codes or cause.level is Level.INFO or cause.foreseen:
        return False
    common = {subject.kind for subject in cause.about} & {subject.kind for subject in symptom.about}
    return not common or not set(cause.about).isdisjoint(symptom.about)


def drop_symptoms(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The verdicts without the findings that a finding of another check explains; see :func:`explains`."""
    causes = [finding for verdict in verdicts for finding in verdict.findings]
    return [_without_symptoms(verdict, causes) for verdict in verdicts]


def _without_symptoms(verdict: Verdict, causes: Sequence[Finding]) -> Verdict:
    for finding in verdict.findings:
        codes = (*verdict.check.explained_by, *finding.explained_by)
        cause = next((cause.code for cause in causes if explains(cause, finding, codes)), None)
        if cause:
            verdict = verdict.without([finding], cause)
    return verdict


def merge(verdicts: Sequence[Verdict], hides: Callable[[Finding], bool] = lambda finding: False) -> Merged:
    """One line for each check, whatever number of sources it looked at, and all findings in order of blame.

    Blame: fail before warn before info; then the host before the group before a run, since what is wrong
    with the machine explains what goes wrong on it. What another finding explains is left out, and what the user has
    silenced (``hides``); what several sources found is told once. Lines are about the findings that are left then.
    """
    verdicts = drop_symptoms(verdicts)
    findings = _in_order_of_blame(verdicts)
    silenced = tuple(finding for finding in findings if hides(finding))
    left = tuple(finding for finding in findings if finding not in silenced)
    by_code: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        by_code.setdefault(verdict.code, []).append(verdict)
    results = (_line(by_code[code], left, silenced) for code in sorted(by_code))
    return Merged(tuple(results), left, silenced)


def _in_order_of_blame(verdicts: Sequence[Verdict]) -> list[Finding]:
    placed = [(finding, verdict.source) for verdict in verdicts for finding in verdict.findings]
    placed.sort(key=lambda pair: (_LEVELS.index(pair[0].level), _SOURCES.index(pair[1]), pair[0].code))
    united: list[tuple[Finding, Source]] = []
    for finding, source in placed:
        same = (number for number, pair in enumerate(united) if _are_one(finding, source, *pair))
        if (number := next(same, None)) is None:
            united.append((finding, source))
        else:
            united[number] = (_united(united[number][0], finding), united[number][1])
    return [finding for finding, _ in united]


def _are_one(finding: Finding, source: Source, other: Finding, other_source: Source) -> bool:
    """Whether two findings are the same thing, seen by two sources; what one source tells apart is never one."""
    if finding == other:
        return True
    if source is other_source or finding.code != other.code or not finding.about:
        return False
    places = {place for place in (finding.where, other.where) if place}
    return set(finding.about) == set(other.about) and len(places) < 2


def _united(first: Finding, other: Finding) -> Finding:
    more = tuple(evidence for evidence in other.evidence if evidence not in first.evidence)
    ranks = tuple(sorted({*first.ranks, *other.ranks}))
    return replace(first, where=first.where or other.where, ranks=ranks, evidence=first.evidence + more)


def _line(
    verdicts: Sequence[Verdict], findings: Iterable[Finding], silenced: Iterable[Finding]
) -> CheckResult:
    """A check's line, from its verdicts and from the findings that are left of all checks."""
    check = verdicts[0].check
    of_check = [finding for finding in findings if finding.code == check.code]
    bad = [finding for finding in of_check if finding.level is not Level.INFO]
    passed = [verdict.passed for verdict in verdicts if verdict.passed]
    good = dict.fromkeys([*(entry.text for entry in passed), *(finding.headline for finding in of_check)])
    reason = next((verdict.reason for verdict in verdicts if verdict.broke), None)
    if reason is not None:
        outcome, text = Outcome.ERROR, f"the check did not complete: {reason} (our bug; see run.log)"
    elif bad:
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        outcome, text = Outcome(bad[0].level.value), bad[0].headline + more
    elif good:
        outcome, text = Outcome.PASS, "; ".join(good)
    else:
        outcome = Outcome.SKIP
        text, reason = _skipped(verdicts, sum(finding.code == check.code for finding in silenced))
    seconds = sum(verdict.seconds for verdict in verdicts)
    evidence = (
        *(entry for judgement in passed for entry in judgement.evidence),
        *(entry for verdict in verdicts for entry in verdict.excused),
    )
    return CheckResult(check.code, check.name, check.family, outcome, text, reason, seconds, evidence)


def _skipped(verdicts: Sequence[Verdict], silenced: int) -> tuple[str, str | None]:
    """The text of the line, and the reason."""
    causes = ", ".join(dict.fromkeys(code for verdict in verdicts for code in verdict.causes))
    if causes or silenced:
        explained = f"its findings are explained by {causes}"
        reason = explained if causes else f"{plural(silenced, 'finding')} silenced"
        return reason, reason
    reason = next(verdict.reason for verdict in verdicts if verdict.reason)
    return f"{verdicts[0].check.title}: {reason}", reason


def compose(
    verdicts: Sequence[Verdict],
    run: Mapping[str, Any],
    started: float,
    *,
    fail_on: Level = Level.WARN,
    notes: Iterable[str] = (),
    unfinished: str | None = None,
    hides: Callable[[Finding], bool] = lambda finding: False,
    since: float | None = None,
) -> Report:
    """The report of a command that began at ``started``, on the monotonic clock, and of what was run.

    ``fail_on`` is the least level that makes the exit status 1; ``unfinished`` says why the examination did not come to
    its end, where it did not; ``hides`` whether the user has silenced a finding. What was examined began at ``since``,
    in seconds since the epoch; None where the command ran it.
    """
    merged = merge(verdicts, hides)
    seconds = time.monotonic() - started
    status = exit_status(merged.findings, merged.results, fail_on, unfinished)
    remarks = [*notes, note_of(merged.silenced)]
    return Report(
        version=__version__,
        command=tuple(sys.argv[1:]),
        exit_status=status,
        seconds=seconds,
        checks=merged.results,
        findings=merged.findings,
        # Where there are findings, one of them tells why.
        run={**run, "fail_on": fail_on.value, "incomplete": unfinished if status != 1 else None},
        notes=tuple(filter(None, remarks)),
        since=time.time() - seconds if since is None else since,
    )


def exit_status(
    findings: Iterable[Finding], results: Iterable[CheckResult], fail_on: Level, unfinished: str | None
) -> int:
    """0 nothing above info, 1 findings, 2 where a check broke or could not look: that is no bill of health."""
    bad = {Level.FAIL} if fail_on is Level.FAIL else {Level.FAIL, Level.WARN}
    if any(finding.level in bad for finding in findings):
        return 1
    return 2 if unfinished or any(result.outcome is Outcome.ERROR for result in results) else 0
