"""What ``--verbose`` says of the excuses that checks apply."""

from copy import copy

from ddpdoctor.excuses import Excuse, noted
from ddpdoctor.judge import compose, judge
from ddpdoctor.model import Passed, Source
from ddpdoctor.report.terminal import render
from tests.support.judging import check

OFF = Excuse("a setting keeps it shut", "Spares an exit that a setting keeps shut.")


def test_an_applied_excuse_is_listed_under_its_check_in_full_reports_only() -> None:
    asked = copy(check("DD308"))
    asked.examine_run = lambda facts: Passed("fine") if OFF.spares("train.py:3") else []
    verdicts = judge(Source.RUN, [asked, check("DD225")], None, lambda text: None)
    report = compose(verdicts, {}, 0.0)
    assert "excused: train.py:3 (a setting keeps it shut)" in render(report, verbose=True)
    assert "excused" not in render(report)
    (result,) = [it for it in report.checks if it.code == "DD225"]
    assert result.evidence == ()


def test_an_excuse_is_noted_once_for_each_thing() -> None:
    with noted() as applied:
        assert [OFF.spares(what) for what in ("a", "b", "a")] == [True] * 3
    assert len(applied) == 2
    assert OFF.spares("outside of any check")
