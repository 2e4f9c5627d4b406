import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ddpdoctor.cli import run
from ddpdoctor.cli.option import NodeCount
from ddpdoctor.cli.options import TrainOptions
from ddpdoctor.cli.train import launch_of_training
from ddpdoctor.job.trainer import TrainingRun, about, bundled_configs
from ddpdoctor.launch import Launch
from ddpdoctor.runs.run_reader import find_runs, read_run
from tests.support.command import SECONDS, ddpdoctor, environment
from tests.support.processes import running_below, wait_until

SHORT = ("train.epochs=1", "train.steps=3", "run.log_every=1", "evaluation.every=1", "parallel.device=cpu")


def last_line(text: str) -> str:
    return text.rstrip("\n").rpartition("\n")[2]


# -- real runs ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_is_trained_and_kept(tmp_path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    done = ddpdoctor("train", *SHORT, cwd=tmp_path, env={"TMPDIR": str(temporary)})
    assert done.status == 0, done.err
    assert "epoch 1: loss" in done.err
    (folder,) = find_runs(tmp_path / "runs")
    found = read_run(folder)
    assert (found.status, found.described.world_size, found.described.steps) == ("finished", 2, 3)
    assert [step.step for step in found.steps] == [1, 2, 3]
    assert found.problems == ()
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
def test_what_the_trainer_refuses_is_one_line(tmp_path):
    done = ddpdoctor("train", *SHORT, "--nproc", "2", "--data", "absent.txt", cwd=tmp_path)
    assert done.status == 2
    (line,) = done.err.splitlines()
    assert line.startswith("trainer: ")
    assert "absent.txt" in line


@pytest.mark.slow
def test_a_dry_run_prints_the_configuration_and_makes_no_run(tmp_path):
    done = ddpdoctor("train", "--dry-run", "--nproc", "1", "train.epochs=7", cwd=tmp_path)
    assert done.status == 0, done.err
    assert "epochs: 7" in done.out
    assert "WORLD_SIZE=1" in done.out
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def training(tmp_path):
    """A training run that goes on until it is stopped, its run folder, and its environment."""
    (tmp_path / "tmp").mkdir()
    long = [*SHORT[2:], "train.epochs=1000", "--nproc", "2"]
    with subprocess.Popen(
        [sys.executable, "-m", "ddpdoctor", "train", *long],
        cwd=tmp_path,
        env=environment({"TMPDIR": str(tmp_path / "tmp")}),
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_until(lambda: any(read_run(path).steps for path in find_runs(tmp_path / "runs")), SECONDS)
        try:
            yield process
        finally:
            process.kill()


def ranks_below(folder: Path) -> dict[int, int]:
    """The process of each rank that works in this folder."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (
                process.joinpath("cwd").resolve() == folder
                and b"trainer.py" in (process / "cmdline").read_bytes()
            ):
                variables = dict(
                    part.split(b"=", 1)
                    for part in (process / "environ").read_bytes().split(b"\0")
                    if b"=" in part
                )
                if b"RANK" in variables:
                    found[int(variables[b"RANK"])] = int(process.name)
        except OSError:
            continue
    return found


@pytest.mark.slow
def test_ctrl_c_ends_every_process_and_keeps_the_run(training, tmp_path):
    assert set(ranks_below(tmp_path)) == {0, 1}
    training.send_signal(signal.SIGINT)
    _, err = training.communicate(timeout=SECONDS)
    assert training.returncode == 130
    (folder,) = find_runs(tmp_path / "runs")
    assert last_line(err) == (
        f"ddpdoctor: stopped; no process of it is left running; the run is in {folder.relative_to(tmp_path)}"
    )
    assert ranks_below(tmp_path) == {}
    assert read_run(folder).status == "stopped"
    assert running_below(tmp_path) == []
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.slow
def test_a_rank_that_is_killed_is_named_and_takes_all_with_it(training, tmp_path):
    os.kill(ranks_below(tmp_path)[1], signal.SIGKILL)
    _, err = training.communicate(timeout=SECONDS)
    assert training.returncode == 1
    assert last_line(err).startswith("ddpdoctor: error: rank 1 was ended by signal 9; the run is in runs/")
    (folder,) = find_runs(tmp_path / "runs")
    assert read_run(folder).status.startswith("failed: ")
    assert ranks_below(tmp_path) == {}


# -- before anything is started ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--config", "two_rank"], "did you mean two_ranks or"),
        (["--config", "zzz"], "`ddpdoctor train --list` lists the bundled ones"),
        (["train.epoch=2"], "unknown key 'train.epoch'; did you mean train.epochs?"),
        (["train.epochs=many"], "train.epochs is 'many'; it takes a whole number"),
        (["epochs"], "'epochs' is not KEY=VALUE"),
        (["--nproc", "0"], "0 is less than 1"),
        (["parallel.world_size=0"], "parallel.world_size is 0; it has to be at least 1"),
        (["--master-port", "70000"], "'--master-port': 70000 is not between 1 and 65535"),
        (["--nnodes", "2"], "--nnodes above 1 requires --master-addr"),
        (["--nnodes", "2", "--node-rank", "2"], "--node-rank 2 is not a node of --nnodes 2"),
    ],
)
def test_what_cannot_be_is_one_line_and_starts_nothing(arguments, expected, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["train", *arguments]) == 2
    said = capsys.readouterr().err
    assert expected in said
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_configuration_of_the_user_that_is_broken_is_one_line(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("train: [")
    assert run(["train", "--config", "mine.yaml"]) == 2
    assert "mine.yaml is not YAML" in capsys.readouterr().err


def test_the_bundled_configurations_are_listed_with_what_they_are(capsys):
    assert run(["train", "--list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == sorted(bundled_configs())
    assert "two_ranks" in bundled_configs()
    assert all(len(about(path)) > 10 for path in bundled_configs().values())


PARALLEL = {"world_size": None, "device": "cpu"}


def launch_of(parallel=None, **options):
    return launch_of_training(TrainOptions(**options), {**PARALLEL, **(parallel or {})})


def test_the_ranks_are_those_asked_for_or_the_configurations_or_two():
    assert launch_of().nproc == 2
    assert launch_of({"world_size": 4}).nproc == 4
    assert launch_of({"world_size": 4}, nproc=3).nproc == 3
    nodes = launch_of({"world_size": 4}, nodes=NodeCount(2, 2), node_rank=1, master_addr="node0")
    assert (nodes.nproc, nodes.node_rank, nodes.master_addr) == (2, 1, "node0")


def test_torchrun_finds_a_port_unless_one_is_given():
    assert launch_of().explicit == frozenset()
    named = launch_of(master_port=29556)
    assert (named.master_port, named.explicit) == (29556, {"master_port"})
    found = launch_of(rdzv_backend="c10d", rdzv_endpoint="node0:29500", nodes=NodeCount(2, 2))
    assert found.rendezvous == (("backend", "c10d"), ("endpoint", "node0:29500"))


# -- why a run failed --------------------------------------------------------------------------------------------

SUMMARY = """\
trainer.py FAILED
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 11)
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : {code} (pid: 12)
"""


def failure(folder, launcher="", status=1, **errors):
    """What is said of a run that left this."""
    made = TrainingRun.__new__(TrainingRun)
    made.launch, made.folder = Launch(nproc=2), folder
    folder.mkdir(exist_ok=True)
    (folder / "launcher.log").write_text(launcher)
    for rank, (when, message) in errors.items():
        own = folder / "torchrun" / "none_x" / "attempt_0" / rank.removeprefix("rank")
        own.mkdir(parents=True)
        said = {"message": {"message": message, "extraInfo": {"timestamp": when}}}
        (own / "error.json").write_text(json.dumps(said))
        os.utime(own / "error.json", (float(when), float(when)))
    return made.failure(status)


def test_the_first_exception_in_time_is_the_cause(tmp_path):
    found = failure(
        tmp_path,
        SUMMARY.format(code=1),
        rank0=("20", "RuntimeError: peer"),
        rank1=("10", "ValueError: \x1b[2J\nat"),
    )
    assert found.text == "rank 1 failed: ValueError: \\x1b[2J"


def test_a_signal_or_a_status_is_told_where_nobody_said_anything(tmp_path):
    assert failure(tmp_path, SUMMARY.format(code=-9)).text == "rank 1 was ended by signal 9"
    assert failure(tmp_path, SUMMARY.format(code=3)).text == "rank 1 ended with exit status 3"
    assert failure(tmp_path, SUMMARY.format(code=2)).refused


def test_who_lost_its_peer_is_not_blamed_for_that(tmp_path):
    lost = "RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:8616"
    summary = SUMMARY.format(code=-2).replace("-15", "1")
    assert failure(tmp_path / "lost", summary, rank0=("20", lost)).text == "rank 1 was ended by signal 2"
    own = failure(tmp_path / "own", summary, rank0=("20", "ValueError: no"))
    assert own.text == "rank 0 failed: ValueError: no"


def test_torchrun_itself_may_fail(tmp_path):
    assert failure(tmp_path, "Traceback\nOSError: port\n").text == "torchrun failed: OSError: port"
    assert failure(tmp_path, status=-9).text == "torchrun was ended by signal 9"
    assert failure(tmp_path).text == "torchrun failed without an error message"
    taken = "torch.distributed.DistNetworkError: ... port: 29500, ... name: EADDRINUSE, message: ..."
    assert failure(tmp_path, taken).text.startswith("port 29500 is in use;")


def test_a_broken_error_file_is_passed_over(tmp_path):
    own = tmp_path / "torchrun" / "x" / "attempt_0" / "0"
    own.mkdir(parents=True)
    (own / "error.json").write_text("{")
    assert failure(tmp_path, SUMMARY.format(code=1)).text == "rank 1 ended with exit status 1"
