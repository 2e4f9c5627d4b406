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


def test_colour_changes_no_character():
    text = terminal.render(EVERYTHING, verbose=True)
    painted = terminal.render(EVERYTHING, verbose=True, colour=True)
    assert re.sub(r"\x1b\[[\d;]*m", "", painted) == text


def beginnings(report: Report) -> set[str]:
    """What has a colour."""
    painted = terminal.render(report, verbose=True, colour=True)
    return set(re.findall(r"^\x1b\[[\d;]+m(.*?)\x1b\[0m", painted, re.MULTILINE))


def test_what_ddpdoctor_says_itself_has_a_colour():
    of_finding = f"FAIL[{EVERYTHING.findings[0].code}]"
    assert {of_finding, "  FAIL", "  pass", "  skip", "  why:   ", "  -->", "next:"} <= beginnings(EVERYTHING)


@pytest.mark.parametrize(
    "text",
    [
        "FAIL[DD101]: not ours",
        "pass   DD101  not ours",
        "  why:   not ours",
        "note: not ours",
        "next: x",
        "data",
    ],
)
def test_a_text_of_the_user_has_none(text):
    mine = f"headline\n{text}\n  {text}"
    finding = replace(UNUSED, headline=mine, why=mine, fix=mine, evidence=(Evidence(mine),))
    report = Report("0.1.0", (), 1, 0.1, findings=(finding,), notes=(mine,))
    painted = terminal.render(report, verbose=True, colour=True)
    assert painted.count("\x1b[0m") == len(
        {"header", "headline", "-->", "why", "fix", "more", "note", "next"}
    )
    assert not any("not ours" in one or one == text for one in beginnings(report))


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
    lines = [line.text for line in finding_lines(finding, 80) if "ready" in line.text]
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
    assert "\n".join(line.text for line in finding_lines(finding, 80)).count(path) == 2


def many_checks() -> tuple[CheckResult, ...]:
    def line(number: int, outcome: Outcome, reason: str | None = None) -> CheckResult:
        return CheckResult(f"DD{number}", "n", Family.DATA, outcome, f"text {number}", reason)

    passed = [line(100 + n, Outcome.PASS) for n in range(15)]
    skipped = [line(200 + n, Outcome.SKIP, f"reason {min(n, 4)}") for n in range(8)]
    return (*passed, *skipped, line(300, Outcome.ERROR, "KeyError"))


def test_of_many_checks_only_those_that_say_something_have_a_line():
    text = terminal.render(Report("0.1.0", (), 2, 0.1, many_checks()))
    table, _, reasons = text.partition("\n\n")[2].partition("\n\n")
    assert table.splitlines() == ["data         15 passed, 8 skipped", "  error  DD300  text 300"]
    assert "skipped   4  reason 4\n" in reasons
    assert "skipped   4  for other reasons, which --verbose lists\n" in reasons
    assert "text 107" in terminal.render(Report("0.1.0", (), 2, 0.1, many_checks()), verbose=True)


def test_information_has_a_line_among_many_checks():
    report = Report("0.1.0", (), 0, 0.1, (*many_checks(), EVERYTHING.checks[1]), (EPHEMERAL,))
    assert "  info   DD902  port 40000" in terminal.render(report)


def test_a_long_launch_line_leaves_the_header_on_one_line():
    run = {"nproc": 4, "nnodes": 1, "backend": "gloo", "torch": "2.13.0", "script": "torchrun " + "x" * 200}
    header, *_ = terminal.render(Report("0.1.0", (), 0, 0.1, run=run)).splitlines()
    assert len(header) == 80
