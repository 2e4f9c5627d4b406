import io
import re
from dataclasses import replace

import pytest

from ddpdoctor.model import CheckResult, Evidence, Family, Outcome, Report
from ddpdoctor.report import terminal
from ddpdoctor.report.detail import finding_lines
from tests.report.sample import EPHEMERAL, EVERYTHING, UNUSED


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "variables", "wanted"),
    [
        (Terminal(), {"TERM": "xterm"}, True),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {"TERM": "xterm"}, False),
    ],
)
def test_colour_is_for_terminals_that_want_it(stream, variables, wanted, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert terminal.wants_colour(stream) is wanted


def test_colour_changes_no_character(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = terminal.render(EVERYTHING, verbose=True)
    painted = terminal.paint(text, 80)
    assert "\x1b[" in painted
    assert re.sub(r"\x1b\[[\d;]*m", "", painted) == text


@pytest.mark.parametrize("width", [50, 80, 110])
def test_nothing_but_what_is_to_copy_is_wider_than_the_terminal(width):
    lines = terminal.render(EVERYTHING, width, verbose=True).splitlines()
    copied = "DistributedDataParallel(", "DistributedSampler(", "ddpdoctor 0.1.0,", "1 failed,"
    assert all(len(line) <= width for line in lines if not any(start in line for start in copied))


def test_a_pipe_is_80_columns_wide_and_a_terminal_has_bounds(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert terminal.width_of_stdout() == 80
    monkeypatch.setenv("COLUMNS", "300")
    assert terminal.width_of_stdout() == terminal.WIDEST
    monkeypatch.setenv("COLUMNS", "10")
    assert terminal.width_of_stdout() == terminal.NARROWEST


def test_ranks_with_equal_evidence_are_one_line():
    finding = replace(UNUSED, evidence=tuple(Evidence("ready", (rank,)) for rank in range(1024) if rank != 7))
    lines = [line for line in finding_lines(finding, 80) if "ready" in line]
    assert lines == ["   0-6, 8-1023   ready"]


def test_information_is_told_in_full_only_on_request():
    report = replace(EVERYTHING, findings=(EPHEMERAL,))
    assert "why:" not in terminal.render(report)
    assert "info   DD902" in terminal.render(report)
    assert "next:" not in terminal.render(report)
    assert "why:" in terminal.render(report, verbose=True)


def test_a_text_of_several_lines_is_one_line_of_the_table():
    line = CheckResult("DD001", "n", Family.LAUNCH, Outcome.ERROR, "first\n\n   second", reason="r")
    assert "  error  DD001  first second\n" in terminal.render(Report("0.1.0", (), 2, 0.1, (line,)))


def test_a_word_longer_than_the_line_stays_whole():
    path = "/" + "x" * 200
    finding = replace(UNUSED, headline=f"the folder {path} is full", fix=path)
    assert "\n".join(finding_lines(finding, 80)).count(path) == 2
