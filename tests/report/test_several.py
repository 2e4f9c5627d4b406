"""Several findings of one check: folded for a person, an entry each for programs."""

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from ddpdoctor.model import Kind, Level, Outcome, Report, Where
from ddpdoctor.report import Format, render
from ddpdoctor.report.terminal import render as render_terminal
from tests.report.sample import EVERYTHING, UNUSED

SECOND = replace(
    UNUSED,
    headline="rank 0 did not produce gradients for 1 of 3 parameters",
    ranks=(0,),
    where=Where("gan.py", 12, "train"),
    about=Kind.MODEL.of("Critic"),
)
THIRD = replace(SECOND, level=Level.WARN, where=None, ranks=(), headline="a model of the third kind")
LINES = tuple(replace(line, text=UNUSED.headline) for line in EVERYTHING.checks if line.code == UNUSED.code)
SEVERAL = replace(EVERYTHING, checks=LINES, findings=(UNUSED, SECOND, THIRD))


def test_the_first_is_told_in_full_and_the_others_by_their_place() -> None:
    text = render_terminal(SEVERAL, 110)
    assert text.count("why:") == 1
    assert "  also:  2 more of DD904" in text
    assert "FAIL  gan.py:12 in train, rank 0: rank 0 did not produce gradients" in text
    assert "warn  a model of the third kind" in text
    assert text.count("FAIL[DD904]") == 1


def test_all_are_told_in_full_on_request() -> None:
    text = render_terminal(SEVERAL, 110, verbose=True)
    assert text.count("why:") == 3
    assert "also:" not in text


def test_the_verdict_counts_findings() -> None:
    assert render_terminal(SEVERAL).splitlines()[-3].startswith("2 problems, 1 warning: ")


@pytest.mark.usefixtures("one_check")
@pytest.mark.parametrize(
    ("format", "count"),
    [
        (Format.JSON, lambda text: len(json.loads(text)["findings"])),
        (Format.SARIF, lambda text: len(json.loads(text)["runs"][0]["results"])),
        (Format.GITHUB, lambda text: text.count("DD904 parameters-unused::")),
        (Format.JUNIT, lambda text: len(ElementTree.fromstring(text).findall(".//failure"))),
    ],
)
def test_programs_get_an_entry_for_each(format: Format, count: object) -> None:
    assert callable(count)
    assert count(render(SEVERAL, format)) == 3


def test_junit_names_each_case_and_counts_them() -> None:
    (suite,) = ElementTree.fromstring(render(SEVERAL, Format.JUNIT))
    names = [case.attrib["name"] for case in suite.iter("testcase")]
    assert names == [f"DD904 parameters-unused{number}" for number in ("", " (2)", " (3)")]
    assert (suite.attrib["tests"], suite.attrib["failures"]) == ("3", "3")


def test_a_check_that_broke_is_an_error_whatever_it_found() -> None:
    broke = replace(LINES[0], outcome=Outcome.ERROR)
    (suite,) = ElementTree.fromstring(render(replace(SEVERAL, checks=(broke,)), Format.JUNIT))
    assert [[part.tag for part in case] for case in suite.iter("testcase")] == [["error"]]


def test_the_json_report_tells_what_a_finding_is_about() -> None:
    report: Report = replace(SEVERAL, findings=(SECOND,))
    (finding,) = json.loads(render(report, Format.JSON))["findings"]
    assert finding["about"] == [{"kind": "model", "name": "Critic"}]
