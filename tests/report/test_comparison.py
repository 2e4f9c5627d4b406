"""Two reports side by side."""

from dataclasses import replace

from ddpdoctor.figures import Row, Section, Span, Strips, Tone
from ddpdoctor.model import Outcome
from ddpdoctor.report.comparison import compared
from ddpdoctor.report.html import render
from tests.report.sample import EVERYTHING, OVERLAP, UNUSED

LEGEND = ((Tone.WORK, "training"), (Tone.WAIT, "waits"))


def step_of(*ranks):
    rows = tuple(
        Row(f"rank {n}", (Span(0, work, Tone.WORK), Span(work, work + wait, Tone.WAIT)))
        for n, (work, wait) in enumerate(ranks)
    )
    return Section(
        "Time by rank", figures=(Strips("Where a training step goes", rows, unit="s", legend=LEGEND),)
    )


def with_findings(*findings, **fields):
    return replace(EVERYTHING, findings=findings, **fields)


def test_findings_are_gone_new_or_still_there_wherever_their_lines_moved():
    moved = replace(UNUSED, where=replace(UNUSED.where, line=91))
    assert compared(with_findings(UNUSED), with_findings(moved), "a").run["compared"]["still_there"] == [
        "DD904"
    ]
    both = compared(with_findings(UNUSED), with_findings(OVERLAP), "a")
    assert both.run["compared"] == {"gone": ["DD904"], "new": ["DD905"], "still_there": []}
    assert both.notes[0] == "compared with a: gone: DD904; new: DD905"
    none = compared(with_findings(), with_findings(), "a")
    assert none.notes[0] == "compared with a: neither run has a finding"


def test_a_check_that_did_not_judge_both_runs_says_nothing_of_the_difference():
    skipped = tuple(replace(check, outcome=Outcome.SKIP) for check in EVERYTHING.checks)
    for before, after in (
        (with_findings(UNUSED), with_findings(checks=skipped)),
        (with_findings(checks=()), with_findings(UNUSED)),
    ):
        assert not any(compared(before, after, "a").run["compared"].values())


def test_the_page_has_both_steps_over_one_axis_and_the_pictures_of_both():
    before = with_findings(UNUSED, sections=(step_of((0.1, 0.3), (0.3, 0.1)),))
    after = with_findings(sections=(step_of(*[(0.2, 0.0)] * 4),))
    both = compared(before, after, "run-a")
    section = both.sections[0]
    steps = section.figures[-1]
    assert [row.spans[-1].end for row in steps.rows] == [0.4, 0.2]
    assert steps.end == 0.4
    assert [section.title for section in both.sections] == [
        "Before and after",
        "Time by rank",
        "Before: Time by rank",
    ]
    page = render(both)
    assert "gone" in page
    assert "run-a" in page
