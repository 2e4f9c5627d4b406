"""Outputs that state the facts of public reports in the formats of the libraries: the root cause comes first.

Each section of reports.txt begins with a line of its name, the checks that may name the cause ("-" for a healthy job),
a word of the headline, the cause as it was read, and where the facts are from.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from ddpdoctor.model import Level
from tests.support.logs import explained


@dataclass(frozen=True)
class Report:
    codes: tuple[str, ...]
    word: str
    text: str


def read_reports() -> dict[str, Report]:
    sections = re.split(r"(?m)^=== ", (Path(__file__).parent / "reports.txt").read_text(encoding="utf-8"))
    reports = {}
    for section in sections[1:]:
        heading, _, text = section.partition("\n")
        name, codes, word, _cause, _source = (part.strip() for part in heading.split("|"))
        reports[name] = Report(tuple(codes.split()), word, text)
    return reports


REPORTS = read_reports()


@pytest.mark.parametrize("name", [name for name, report in REPORTS.items() if report.codes != ("-",)])
def test_the_root_cause_comes_first(name):
    report = REPORTS[name]
    first, *others = explained(report.text)
    assert first.code in report.codes
    assert report.word in first.headline
    assert first.evidence
    assert [finding for finding in others if finding.level is Level.FAIL] == []


@pytest.mark.parametrize("name", [name for name, report in REPORTS.items() if report.codes == ("-",)])
def test_a_healthy_job_raises_no_more_than_information(name):
    assert [finding for finding in explained(REPORTS[name].text) if finding.level is not Level.INFO] == []
