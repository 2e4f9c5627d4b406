"""Asks one check about facts, as the engine would."""

from typing import Any

from ddpdoctor import registry
from ddpdoctor.check import Check
from ddpdoctor.judge import NotMeasured, settled
from ddpdoctor.model import Finding, Passed, Skipped, Source


def check(code: str) -> Check:
    found = registry.by_code(code)
    assert found is not None, f"no check has the code {code}"
    return found


def ask(code: str, source: Source, facts: Any) -> Any:
    """What a check says: findings as a list, and a question that it cannot answer as a skip."""
    try:
        return settled(getattr(check(code), source.method)(facts))
    except NotMeasured as missing:
        return Skipped(str(missing))


def only_finding(code: str, source: Source, facts: Any) -> Finding:
    said = ask(code, source, facts)
    assert not isinstance(said, Passed | Skipped), f"{code} found nothing: {said}"
    (finding,) = said
    assert finding.code == code
    return finding


def passed(code: str, source: Source, facts: Any) -> Passed:
    said = ask(code, source, facts)
    assert isinstance(said, Passed), f"{code} did not pass: {said}"
    return said


def skipped(code: str, source: Source, facts: Any) -> Skipped:
    said = ask(code, source, facts)
    assert isinstance(said, Skipped), f"{code} did not skip: {said}"
    return said
