import json
import sys

import pytest

from ddpdoctor.cli import run
from tests.support.run_folders import make_run

ESCAPE = "\x1b[31mred"


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Three runs in ./runs, of one, two and four ranks."""
    monkeypatch.chdir(tmp_path)
    for at, (ranks, speed) in enumerate({1: 100.0, 2: 180.0, 4: 240.0}.items()):
        make_run(tmp_path / "runs", f"2026010{at + 1}-000000-{ranks}_ranks", ranks=ranks, speed=speed)
    return tmp_path / "runs"


@pytest.fixture
def said(capsys):
    """Runs a command line and returns its status, stdout and stderr."""

    def command(*arguments: str) -> tuple[int, str, str]:
        status = run(["runs", *arguments])
        return status, *capsys.readouterr()

    return command


def test_list(runs, said):
    status, out, _ = said("list")
    assert status == 0
    assert [line.split() for line in out.splitlines()] == [
        ["run", "status", "ranks", "steps", "loss", "eval", "samples/s", "time"],
        ["20260101-000000-1_ranks", "finished", "1", "20", "0.250", "-", "100", "30.0", "s"],
        ["20260102-000000-2_ranks", "finished", "2", "20", "0.250", "-", "180", "30.0", "s"],
        ["20260103-000000-4_ranks", "finished", "4", "20", "0.250", "-", "240", "30.0", "s"],
    ]


def test_a_comparison_has_speed_up_and_efficiency(runs, said):
    _, out, _ = said("compare", "1_ranks", "2_ranks", "4_ranks")
    assert [line.split()[-3:] for line in out.splitlines()[6:9]] == [
        ["x", "100", "%"], ["x", "90", "%"], ["x", "60", "%"],
    ]  # fmt: skip
    assert "2.40 x" in out
    assert "\nagainst 20260101-000000-1_ranks\n" in out
    _, out, _ = said("compare", "2_ranks", "4_ranks", "--baseline", "2_ranks")
    assert "1.33 x" in out


def test_a_comparison_without_a_single_process_says_so(runs, said):
    for name in ("first", "second"):
        make_run(runs.parent / "others", name, ranks=2)
    _, out, _ = said("compare", "first", "second", "--folder", "others")
    assert "no run of one process has the same model" in out


def test_show_the_latest(runs, said):
    _, out, _ = said("show")
    assert out.startswith("20260103-000000-4_ranks  finished\n")
    assert "4 ranks, cpu, gloo, torch 2.13.0" in out
    assert "2.40 times 20260101-000000-1_ranks, efficiency 60 %" in out
    assert "    data.strategy: 'sharded'\n" in out


def test_compare_shows_the_settings_that_differ(runs, said):
    _, out, _ = said("compare", "2_ranks", "4_ranks")
    assert "parallel.world_size                        2                        4\n" in out
    assert "data.strategy" not in out
    assert said("compare", "2_ranks") == (2, "", "ddpdoctor: error: compare requires at least two runs\n")


@pytest.mark.parametrize("command", [["list"], ["show"], ["compare", "2_ranks", "4_ranks"]])
def test_output_goes_to_a_file(runs, said, tmp_path, command):
    status, out, _ = said(*command, "--format", "html", "--output", "runs.html")
    assert (status, out) == (0, "")
    assert (tmp_path / "runs.html").read_text().startswith("<!DOCTYPE html>")


def test_an_output_that_cannot_be_written_is_one_line(runs, said):
    status, _, error = said("list", "--output", "/nowhere/runs.html")
    assert (status, error.count("\n")) == (2, 1)


@pytest.mark.parametrize("command", ["list", "show"])
def test_json(runs, said, command):
    _, out, _ = said(command, "--format", "json")
    last = json.loads(out)[-1]
    assert (last["name"], last["ranks"], last["samples_per_second"]) == ("20260103-000000-4_ranks", 4, 240.0)
    assert last["efficiency"] == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["show", "0_ranks"], "no run in 'runs' is called '0_ranks'"),
        (["show", "2026010"], "'2026010' is ambiguous: 20260101-000000-1_ranks, 20260102-000000-2_ranks,"),
        (["show", "20260102-000000-2_rank5"], "did you mean 20260102-000000-2_ranks or"),
        (["list", "--folder", "absent"], "no run in 'absent'; `ddpdoctor train` creates one"),
        (["show", "--folder", "absent"], "no run in 'absent'; `ddpdoctor train` creates one"),
        (["plot", "-o", "runs.pdf"], "'runs.pdf' ends with neither .png nor .svg"),
        (["plot", "-o", "absent/runs.svg"], "'absent/runs.svg' cannot be written"),
    ],
)
def test_what_cannot_be_is_one_line(runs, said, arguments, expected):
    if "absent/runs.svg" in arguments:
        pytest.importorskip("matplotlib")
    status, out, err = said(*arguments)
    assert (status, out) == (2, "")
    assert expected in err
    assert err.count("\n") == 1


def test_the_command_alone_prints_its_help(said):
    status, out, err = said()
    assert (status, err) == (0, "")
    assert out.startswith("Usage: ddpdoctor runs")


def test_hostile_names_move_no_cursor(tmp_path, said, monkeypatch):
    monkeypatch.chdir(tmp_path)
    facts = {"name": ESCAPE, "status": ESCAPE, "device": ESCAPE, "torch": ESCAPE, "command": [ESCAPE]}
    make_run(tmp_path / "runs", f"1{ESCAPE}", config={ESCAPE: ESCAPE, "api_token": "s3cr3t-value"}, **facts)
    make_run(tmp_path / "runs", f"2{ESCAPE}", config={ESCAPE: {ESCAPE: [ESCAPE]}}, **facts)
    for arguments in (
        ["list"],
        ["show", "1"],
        ["compare", "1", "2"],
    ):
        status, out, err = said(*arguments)
        assert status == 0
        assert "\x1b" not in out + err
        assert "s3cr3t" not in out
    assert "\x1b" not in said("list", "--format", "json")[1]


def test_a_run_that_was_cut_off_is_shown_with_what_is_wrong(runs, said):
    with (runs / "20260103-000000-4_ranks" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 21, "lo')
    assert "problem   1 line of metrics.jsonl cannot be read" in said("show")[1]


@pytest.mark.parametrize("name", ["runs.svg", "runs.png"])
@pytest.mark.parametrize("what", ["curves", "scaling"])
def test_plot(runs, said, name, what):
    pytest.importorskip("matplotlib")
    assert said("plot", "--what", what, "-o", name) == (0, f"{name}\n", "")
    assert (runs.parent / name).stat().st_size > 5000


def test_a_picture_without_matplotlib_says_what_to_install(runs, said, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    status, _, err = said("plot")
    assert (status, err) == (2, "ddpdoctor: error: pictures require matplotlib: pip install matplotlib\n")
