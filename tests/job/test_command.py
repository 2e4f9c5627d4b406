"""The command line and the environment of a job."""

import argparse
import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest

from ddpdoctor.job.command import Job, JobKind
from ddpdoctor.launch import Launch
from ddpdoctor.recorder.events.decode import from_plain
from ddpdoctor.recorder.options import RecorderOptions

FOLDER = Path("/run")


def command(launch: Launch, kind: JobKind = JobKind.SCRIPT, *words: str) -> list[str]:
    return Job(kind, words or ("train.py",)).command(launch, FOLDER)


def option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


def test_a_script_on_one_node_takes_a_free_port() -> None:
    words = command(Launch(nproc=4), JobKind.SCRIPT, "train.py", "--log", "x")
    assert "--standalone" in words
    assert option(words, "--nproc-per-node") == "4"
    assert words[-4:] == ["--", "train.py", "--log", "x"]


def test_a_module() -> None:
    assert command(Launch(), JobKind.MODULE, "a.b", "-m")[-4:] == ["-m", "--", "a.b", "-m"]


def test_a_port_that_was_asked_for_is_taken() -> None:
    words = command(Launch(master_port=1234, explicit=frozenset({"master_port"})))
    assert "--standalone" not in words
    assert option(words, "--master-port") == "1234"
    assert "--standalone" in command(Launch(explicit=frozenset({"master_port"}), standalone=True))


def test_nodes_meet_as_they_were_told() -> None:
    words = command(Launch(nnodes=2, node_rank=1, master_addr="node0", master_port=1234))
    assert [option(words, name) for name in ("--nnodes", "--node-rank", "--master-addr")] == [
        "2",
        "1",
        "node0",
    ]
    elastic = command(Launch(nnodes=3, spare_nodes=1, max_restarts=2))
    assert [option(elastic, name) for name in ("--nnodes", "--max-restarts")] == ["2:3", "2"]
    assert "--monitor-interval" not in elastic
    words = command(Launch(nnodes=2, rendezvous=(("backend", "c10d"), ("endpoint", "node0:1234"))))
    assert option(words, "--rdzv-endpoint") == "node0:1234"
    assert "--master-addr" not in words


def test_a_launch_line_runs_as_it_stands() -> None:
    assert command(Launch(), JobKind.LINE, "bash", "run.sh") == ["bash", "run.sh"]


def test_torchruns_own_parser_leaves_the_scripts_options_alone() -> None:
    """Without the dashes it says that --log is ambiguous; the arguments behind them are those of the script."""
    parser = argparse.ArgumentParser()
    for name in (
        "--log-dir",
        "--log-line-prefix",
        "--nproc-per-node",
        "--redirects",
        "--monitor-interval",
        "--nnodes",
        "--local-addr",
    ):
        parser.add_argument(name)
    for name in ("--standalone", "--max-restarts"):
        parser.add_argument(name, nargs="?")
    parser.add_argument("script")
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    mine = ["--log", "x", "--nproc", "9", "-h", "--", "--help"]
    words = command(Launch(), JobKind.SCRIPT, "train.py", *mine)
    parsed = parser.parse_args(words[words.index("--nnodes") :])
    assert (parsed.script, parsed.rest) == ("train.py", mine)


def environ(kind: JobKind, torch: str | None = "2.13.0", **recorder: object) -> dict[str, str]:
    return Job(kind, ("train.py",), RecorderOptions(**recorder)).environ(Launch(nproc=3), FOLDER, torch)  # type: ignore[arg-type]


def test_the_recorder_stands_in_front_of_the_users_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine:/yours")
    ours, *users = environ(JobKind.SCRIPT)["PYTHONPATH"].split(os.pathsep)
    assert (Path(ours) / "sitecustomize.py").exists()
    assert users == ["/mine", "/yours"]
    monkeypatch.delenv("PYTHONPATH")
    assert environ(JobKind.SCRIPT)["PYTHONPATH"] == ours  # an empty part would be the working directory


def test_options_reach_the_recorder() -> None:
    said = environ(JobKind.SCRIPT, batches=3, rehearse=True, time_limit=9.5)
    asked = ("RECORD", "BATCHES", "FULL", "TIME_LIMIT", "REHEARSE", "NPROC")
    assert [said[f"DDPDOCTOR_{name}"] for name in asked] == ["/run/record", "3", "0", "9.5", "1", "3"]
    assert environ(JobKind.SCRIPT)["DDPDOCTOR_REHEARSE"] == "0"  # whatever the run that started this one has


def test_ranks_of_a_rehearsal_do_not_each_take_all_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert environ(JobKind.LINE, rehearse=True)["OMP_NUM_THREADS"] == "1"
    assert "OMP_NUM_THREADS" not in environ(JobKind.LINE)
    monkeypatch.setenv("OMP_NUM_THREADS", "6")
    assert environ(JobKind.LINE, rehearse=True)["OMP_NUM_THREADS"] == "6"


@pytest.mark.parametrize(
    ("torch", "name"),
    [
        ("2.13.0+cpu", "TORCH_FR_BUFFER_SIZE"),
        ("2.8.0", "TORCH_FR_BUFFER_SIZE"),
        (None, "TORCH_FR_BUFFER_SIZE"),
        ("2.7.1", "TORCH_NCCL_TRACE_BUFFER_SIZE"),
        ("2.4.0", "TORCH_NCCL_TRACE_BUFFER_SIZE"),
    ],
)
def test_the_flight_recorder_is_on_under_the_name_that_this_torch_knows(
    torch: str | None, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
    for one in both:
        monkeypatch.delenv(one, raising=False)
    assert [one for one in both if one in environ(JobKind.SCRIPT, torch)] == [name]
    monkeypatch.setenv("TORCH_NCCL_TRACE_BUFFER_SIZE", "7")
    said = environ(JobKind.SCRIPT, torch)
    assert (said.get("TORCH_FR_BUFFER_SIZE"), said["TORCH_NCCL_TRACE_BUFFER_SIZE"]) == (None, "7")


def test_a_clusters_defaults_for_torchrun_do_not_reach_our_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PET_NNODES", "8")
    assert "PET_NNODES" not in environ(JobKind.SCRIPT)
    assert environ(JobKind.LINE)["PET_NNODES"] == "8"


def test_a_job_survives_its_file() -> None:
    job = Job(JobKind.MODULE, ("a.b", "--x"), RecorderOptions(3, 7.5, True, 4.5, True), bundled=True)
    assert from_plain(Job, json.loads(json.dumps(asdict(job)))) == job
