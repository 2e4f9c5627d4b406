"""Runs checks over facts and puts what they say into the vocabulary of the report."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ddpdoctor.check import Check
from ddpdoctor.model import CheckResult, Finding, Judgement, Level, Outcome, Passed, Skipped, Source

_BAD_FIRST = (Outcome.ERROR, Outcome.FAIL, Outcome.WARN, Outcome.PASS, Outcome.SKIP)
_LEVELS = tuple(Level)


class NotMeasured(Exception):
    """Facts that a check asks for are not there; the text is the reason that the report gives."""


@dataclass(frozen=True)
class Verdict:
    """What one check said of one source."""

    result: CheckResult
    findings: tuple[Finding, ...]
    source: Source
    explained_by: tuple[str, ...] = ()
    """Codes whose findings explain this one's away."""


def judge(
    source: Source, checks: Iterable[Check], facts: Any, on_error: Callable[[str], None]
) -> list[Verdict]:
    """Ask each check about the facts of one source.

    Args:
        facts: what the ``examine_*`` methods of this source take.
        on_error: is given the traceback of a check that broke.
    """
    return [_judge_one(source, check, facts, on_error) for check in checks]


def _judge_one(source: Source, check: Check, facts: Any, on_error: Callable[[str], None]) -> Verdict:
    start = time.perf_counter()
    error: str | None = None
    said: Judgement = Skipped("it broke")
    try:
        said = getattr(check, source.method)(facts)
    except NotMeasured as missing:
        said = Skipped(str(missing))
    except Exception as broken:  # noqa: BLE001 - a check that breaks is an outcome, and the others still count
        error = f"{type(broken).__name__}: {broken}"
        on_error(f"{check.code} {source.method} broke:\n{traceback.format_exc()}")
    seconds = time.perf_counter() - start
    result = _result(check, said, error)
    findings = tuple(said) if error is None and not isinstance(said, Passed | Skipped) else ()
    return Verdict(replace(result, seconds=seconds), findings, source, check.explained_by)


def _result(check: Check, said: Judgement, error: str | None) -> CheckResult:
    def line(outcome: Outcome, text: str, **more: Any) -> CheckResult:
        return CheckResult(check.code, check.name, check.family, outcome, text, **more)

    if error is not None:
        text = f"the check did not complete: {error} (our bug; see run.log)"
        return line(Outcome.ERROR, text, reason=error)
    if isinstance(said, Skipped):
        return line(Outcome.SKIP, f"{check.title}: {said.reason}", reason=said.reason)
    if isinstance(said, Passed):
        return line(Outcome.PASS, said.text, evidence=said.evidence)
    worst = min(said, key=lambda finding: _LEVELS.index(finding.level))
    if worst.level is Level.INFO:
        return line(Outcome.PASS, worst.headline)
    return line(Outcome(worst.level.value), worst.headline)


def drop_symptoms(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The verdicts without findings that another check's finding explains; those become skips with its code."""
    found = {
        verdict.result.code for verdict in verdicts if verdict.result.outcome in (Outcome.FAIL, Outcome.WARN)
    }
    return [_explained(verdict, found) for verdict in verdicts]


def _explained(verdict: Verdict, found: set[str]) -> Verdict:
    of_findings = (code for finding in verdict.findings for code in finding.explained_by)
    cause = next((code for code in (*verdict.explained_by, *of_findings) if code in found), None)
    if cause is None or not verdict.findings:
        return verdict
    reason = f"what it found, {cause} explains"
    line = replace(verdict.result, outcome=Outcome.SKIP, text=reason, reason=reason)
    return replace(verdict, result=line, findings=())


def skip_all(source: Source, checks: Iterable[Check], reason: str) -> list[Verdict]:
    """The verdicts where a source could not be looked at, for one reason."""
    return [Verdict(_result(check, Skipped(reason), None), (), source) for check in checks]


def merge(verdicts: Sequence[Verdict]) -> tuple[tuple[CheckResult, ...], tuple[Finding, ...]]:
    """One line for each check, whatever number of sources it looked at, and all findings in order of blame.

    Blame: fail before warn before info; then the host before the group before a run, since what is wrong
    with the machine explains what goes wrong on it. What another finding explains is left out.
    """
    verdicts = drop_symptoms(verdicts)
    lines: dict[str, list[CheckResult]] = {}
    for verdict in verdicts:
        lines.setdefault(verdict.result.code, []).append(verdict.result)
    order = list(Source)
    blamed = sorted(
        ((finding, verdict.source) for verdict in verdicts for finding in verdict.findings),
        key=lambda pair: (_LEVELS.index(pair[0].level), order.index(pair[1]), pair[0].code),
    )
    results = sorted((_merge_lines(same) for same in lines.values()), key=lambda line: line.code)
    return tuple(results), tuple(finding for finding, _ in blamed)


def _merge_lines(same: Sequence[CheckResult]) -> CheckResult:
    worst = min(same, key=lambda line: _BAD_FIRST.index(line.outcome))
    alike = [line for line in same if line.outcome is worst.outcome]
    return replace(
        worst,
        text="; ".join(dict.fromkeys(line.text for line in alike))
        if worst.outcome is Outcome.PASS
        else worst.text,
        seconds=sum(line.seconds for line in same),
        evidence=tuple(evidence for line in same for evidence in line.evidence),
    )


def exit_status(
    findings: Iterable[Finding], results: Iterable[CheckResult], fail_on: Level, unfinished: str | None
) -> int:
    """0 nothing above info, 1 findings, 2 where a check broke or could not look: that is no bill of health."""
    bad = {Level.FAIL} if fail_on is Level.FAIL else {Level.FAIL, Level.WARN}
    if any(finding.level in bad for finding in findings):
        return 1
    return 2 if unfinished or any(result.outcome is Outcome.ERROR for result in results) else 0
