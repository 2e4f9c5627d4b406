"""The options of the commands: each is declared once, and means the same wherever it is taken."""

import re

import pytest
from typer.testing import CliRunner

from ddpdoctor.cli import options, run
from ddpdoctor.cli.app import app
from ddpdoctor.cli.command import TOPICS
from ddpdoctor.cli.option import OPTION
from ddpdoctor.cli.options import BenchOptions, CheckOptions, LaunchOptions, TrainOptions, WatchOptions

COMMANDS = [kind for name, kind in vars(options).items() if name.endswith("Options")]
DIFFERENT = {"fail_on", "format", "output", "subjects", "timeout"}
"""What has one name and is something else in each command: formats and files of other things, limits of
other times."""


def test_an_option_is_declared_once():
    declared: dict[str, set[str]] = {}
    for command in COMMANDS:
        for name in vars(command)["__annotations__"]:
            option = command.__dataclass_fields__[name].metadata[OPTION]
            declared.setdefault(name, set()).add(option.help)
    assert {name for name, kinds in declared.items() if len(kinds) > 1} == DIFFERENT


@pytest.mark.parametrize("command", ["check", "watch", "train", "bench"])
def test_the_ranks_have_torchruns_name_and_a_short_one(command):
    shown = CliRunner().invoke(app, [command, "--help"]).output
    assert "--nproc-per-node, --nproc N" in shown


def test_the_options_of_a_topic_stand_together():
    shown = CliRunner().invoke(app, ["check", "--help"]).output
    assert re.findall(r"^(\w.*):$", shown, re.MULTILINE)[: len(TOPICS)] == list(TOPICS)
    assert "list[" not in shown


@pytest.mark.parametrize(
    ("shell", "words", "completed"),
    [
        ("bash", "ddpdoctor expl", "explain"),
        ("zsh", "ddpdoctor check --form", "--format"),
        ("fish", "ddpdoctor explain DD10", "DD101"),
        ("bash", "ddpdoctor check --select DD201,set-", "DD201,set-epoch-missing"),
        ("bash", "ddpdoctor train --config two", "two_ranks"),
    ],
)
def test_shells_complete_commands_options_and_codes(shell, words, completed, monkeypatch, capsys):
    typed = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_TYPER_COMPLETE_ARGS": words}
    typed |= {"_DDPDOCTOR_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    for name, value in typed.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        run([])
    assert completed in capsys.readouterr().out


@pytest.mark.parametrize("command", ["check", "watch", "train"])
def test_torchruns_options_are_all_there(command):
    shown = CliRunner().invoke(app, [command, "--help"]).output
    for name in ("nnodes", "node-rank", "master-addr", "master-port", "standalone", "max-restarts"):
        assert f"  --{name} " in shown
    for name in ("backend", "endpoint", "id", "conf"):
        assert f"  --rdzv-{name} " in shown


def test_only_what_is_given_of_the_rendezvous_reaches_torchrun():
    assert LaunchOptions().rendezvous == ()
    given = LaunchOptions(rdzv_backend="c10d", rdzv_conf="timeout=900")
    assert given.rendezvous == (("backend", "c10d"), ("conf", "timeout=900"))


def test_commands_share_their_groups():
    assert issubclass(CheckOptions, LaunchOptions)
    assert issubclass(WatchOptions, LaunchOptions)
    assert issubclass(TrainOptions, LaunchOptions)
    assert not issubclass(BenchOptions, LaunchOptions)  # on one node, of its own ranks


@pytest.mark.parametrize(
    ("line", "reports"),
    [
        ("", ["terminal -"]),
        ("--output a.txt", ["terminal a.txt"]),
        ("--output a.html", ["html a.html"]),
        ("--output a.json -- torchrun --output b.html", ["json a.json"]),
        ("--output a.json --format terminal", ["terminal a.json"]),
        ("--format json", ["json -"]),
        ("--output a.json --format json", ["json a.json"]),
        ("--format github --format junit --output a.xml", ["github -", "junit a.xml"]),
        ("--format junit --output a.xml --format github", ["junit a.xml", "github -"]),
        ("--output a --format json --format sarif --output b", ["json a", "sarif b"]),
        ("--format=json --output=- --format=terminal --output=a", ["json -", "terminal a"]),
        ("--output a.sarif --output=b.json --output c.html", ["sarif a.sarif", "json b.json", "html c.html"]),
    ],
)
def test_an_output_belongs_to_the_format_before_it(line, reports, monkeypatch):
    given = []
    monkeypatch.setattr("ddpdoctor.cli.explain.run_explain", lambda options: given.append(options) or 0)
    assert run(["explain", *line.split(), __file__]) == 0
    (options,) = given
    assert [f"{format.value} {file}" for format, file in options.reports] == reports


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--format json --output a --output b", "--output 'b' requires a --format of its own before it"),
        ("--format json --format junit", "only one report can go to stdout"),
        ("--format json --output a --format junit --output a", "--output 'a' is given for two reports"),
    ],
)
def test_two_reports_in_one_place_are_refused(line, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["explain", *line.split(), __file__]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
