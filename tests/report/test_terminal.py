import io
import re
from dataclasses import replace

import pytest

from ddpdoctor.model import CheckResult, Evidence, Family, Outcome, Patch, Report, Where
from ddpdoctor.report import terminal
from ddpdoctor.report.detail import finding_lines
from tests.report.sample import EPHEMERAL, EVERYTHING, UNUSED

VERIFIED = Patch("head.aux used", "", True, "DD204 is gone")


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


@pytest.mark.parametrize(
    ("command", "patch", "expected"),
    [
        (("check", "train.py"), None, "ddpdoctor fix /tmp/run"),
        (("check", "--fix", "train.py"), VERIFIED, "ddpdoctor fix --apply /tmp/run"),
        (("fix", "/tmp/old run"), VERIFIED, "ddpdoctor fix --apply '/tmp/old run'"),
        (("check", "--fix", "--diff", "a.patch", "train.py"), VERIFIED, "git apply a.patch"),
        (("check", "--fix", "--apply", "train.py"), VERIFIED, "ddpdoctor check train.py"),
        (("check", "--fix", "train.py"), replace(VERIFIED, verified=False), "ddpdoctor explain DD904"),
    ],
)
def test_the_next_command_is_the_one_that_helps_most(command, patch, expected):
    finding = replace(UNUSED, patch=patch, mechanical=patch is None)
    report = Report("0.1.0", command, 1, 0.1, (), (finding,), run={"folder": "/tmp/run"})
    assert f"\nnext:  {expected}\n" in terminal.render(report)


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
    assert text.split("\n\n")[1].splitlines() == [
        "passed   15  data 15",
        "8 more do not apply (--verbose)",
        "  error  DD300  text 300",
    ]
    assert "text 107" in terminal.render(Report("0.1.0", (), 2, 0.1, many_checks()), verbose=True)


def test_where_something_was_found_checks_that_passed_are_not_listed():
    text = terminal.render(Report("0.1.0", (), 1, 0.1, many_checks(), (UNUSED,)))
    _, rows, finding, *_ = text.split("\n\n")
    assert (rows, finding[:12]) == ("  error  DD300  text 300", "FAIL[DD904]:")
    assert "1 problem, 1 check broke: 16 checks, " in text


def test_information_has_a_line_among_many_checks():
    report = Report("0.1.0", (), 0, 0.1, (*many_checks(), EVERYTHING.checks[1]), (EPHEMERAL,))
    assert "  info   DD902  port 40000" in terminal.render(report)


def test_a_rehearsed_job_has_its_own_size():
    run = {"nproc": 3, "nnodes": 1, "imagined": {"world_size": 12, "nproc": 8, "ranks": [0, 8, 11]}}
    header = terminal.render(Report("0.1.0", (), 0, 0.1, run=run)).splitlines()[0]
    assert header == "ddpdoctor 0.1.0, 3 of 12 ranks on 2 simulated hosts"


def test_a_long_launch_line_has_lines_of_its_own():
    run = {
        "nproc": 4,
        "nnodes": 1,
        "backend": "gloo",
        "torch": "2.13.0",
        "script": "torchrun" + " --option 1" * 8,
    }
    header, *lines = terminal.render(Report("0.1.0", (), 0, 0.1, run=run)).partition("\n\n")[0].splitlines()
    assert header == "ddpdoctor 0.1.0, torch 2.13, 4 ranks on 1 host, gloo"
    assert " ".join(line.strip() for line in lines) == run["script"]
    assert all(line.startswith("  ") and len(line) <= 80 for line in lines)


def test_what_a_healthy_run_says_fits_one_screen():
    def line(number: int) -> CheckResult:
        outcome = Outcome.SKIP if number % 2 else Outcome.PASS
        reason = f"reason {number % 7} in a few words, as long as they may well be"
        return CheckResult(f"DD{number}", "n", list(Family)[number % len(Family)], outcome, "text", reason)

    notes = (
        "cut short: 4 passes over DataLoaders to 8 batches; not decided because of it: DD308; --full",
    ) * 3
    report = replace(EVERYTHING, checks=tuple(map(line, range(100))), findings=(), notes=notes, exit_status=0)
    assert len(terminal.render(report).splitlines()) < 24


def test_findings_stand_last_and_several_are_listed_above_the_verdict():
    blocks = terminal.render(EVERYTHING).split("\n\n")
    assert blocks[-1].splitlines()[:2] == [
        "FAIL[DD904]  src/größe 1,2.py:88: rank 2 did not produce gradients for 2 of 148",
        "             parameters",
    ]
    only = terminal.render(replace(EVERYTHING, findings=(UNUSED,))).split("\n\n")
    assert only[-1].startswith("1 problem")
    assert only[-2].endswith("more:  ddpdoctor explain DD904")


def test_of_many_findings_of_a_check_the_first_are_listed():
    findings = tuple(replace(UNUSED, headline=f"headline {number}") for number in range(20))
    text = terminal.render(replace(EVERYTHING, findings=findings))
    assert "also:  19 more of DD904" in text
    assert "headline 5\n         and 14 more, which --verbose lists\n" in text
    assert "headline 6" not in text


def test_a_path_is_shown_from_the_working_directory_or_from_the_scripts_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = {"script": "torchrun --nproc-per-node 2 /data/project/train.py --lr 1"}
    for file, shown in {
        str(tmp_path / "src/train.py"): "src/train.py",
        "/data/project/lib/model.py": "lib/model.py",
        "/data/other.py": "/data/other.py",
    }.items():
        finding = replace(UNUSED, where=Where(file, 88, "train_step"))
        text = terminal.render(replace(EVERYTHING, findings=(finding,), run=run))
        assert f"\n  --> {shown}:88 in train_step\n" in text


def verdict_of(**run):
    """The last line of a report of one check that passed."""
    report = Report(
        "0.1.0", (), 0, 8.1, checks=(CheckResult("DD901", "a", Family.LAUNCH, Outcome.PASS, "fine"),), run=run
    )
    return terminal.render(report).splitlines()[-1]


def test_the_verdict_says_how_much_was_trained():
    trained = {"steps": 24, "epochs": 3}
    assert (
        verdict_of(nproc=2, trained=trained)
        == "No problem found: 1 check, 2 ranks, 24 steps in 3 epochs (whole), 8.1 s"
    )
    cut = {"batches_per_pass": 8, "passes": 1, "steps": None}
    assert "24 steps in 3 epochs (cut short)" in verdict_of(nproc=2, trained=trained, shortened=cut)
    assert "1 step (whole)" in verdict_of(nproc=2, trained={"steps": 1, "epochs": 0})


def test_an_examination_that_came_to_no_end_is_no_clean_bill():
    said = verdict_of(nproc=2, incomplete="not distributed: init_process_group was never called")
    assert said == "Not distributed: init_process_group was never called: 1 check, 2 ranks, 8.1 s"
