"""The options of the commands: each is declared once, and means the same wherever it is taken."""

import pytest
from typer.testing import CliRunner

from ddpdoctor.cli import options
from ddpdoctor.cli.app import app
from ddpdoctor.cli.options import BenchOptions, CheckOptions, LaunchOptions, TrainOptions, WatchOptions

COMMANDS = [kind for name, kind in vars(options).items() if name.endswith("Options")]
DIFFERENT = {"fail_on", "format", "subjects", "timeout"}
"""What has one name and is something else in each command: formats of other things, limits of other times."""


def test_an_option_is_declared_once():
    declared: dict[str, set[str]] = {}
    for command in COMMANDS:
        for name in vars(command)["__annotations__"]:
            option = command.__dataclass_fields__[name].metadata[options.OPTION]
            declared.setdefault(name, set()).add(option.help)
    assert {name for name, kinds in declared.items() if len(kinds) > 1} == DIFFERENT


@pytest.mark.parametrize("command", ["check", "watch", "train", "bench"])
def test_the_ranks_have_torchruns_name_and_a_short_one(command):
    shown = CliRunner().invoke(app, [command, "--help"]).output
    assert "--nproc-per-node, --nproc N" in shown


@pytest.mark.parametrize("command", ["check", "watch", "train"])
def test_torchruns_options_are_all_there(command):
    shown = CliRunner().invoke(app, [command, "--help"]).output
    for name in ("nnodes", "node-rank", "master-addr", "master-port", "standalone"):
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
