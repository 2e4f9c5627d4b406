"""What Slurm's accounting says of a run that broke; its rows are those of a cluster of ours (tests.slurm)."""

import os
import stat
from pathlib import Path

import pytest

from ddpdoctor.job import sacct
from ddpdoctor.trace import SlurmEnd
from ddpdoctor.trace.recording import Recording
from tests.support.recordings import recorded, replace

IN_STEP = {"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0"}


def task(rank: int, of_rank: Recording) -> Recording:
    return replace(of_rank, exit=None, environ={"SLURM_PROCID": str(rank), **IN_STEP})


TRACE = recorded(2, task)
CANCELLED = "1|FAILED|2|3000M|||00:10:00\n1.0|CANCELLED by 0|2||node1|1|\n"
"""Of a step that slurmstepd ended for its memory, which it measures itself."""
EXCEEDED = "slurmstepd-node1: error: StepId=1.0 exceeded memory limit (1665511424 > 1572864000), being killed"
BY_KERNEL = "1|OUT_OF_MEMORY|2|8G|||00:10:00\n1.0|OUT_OF_MEMORY|2||node0|0|\n"
AT_TIME_LIMIT = "1|TIMEOUT|2|8000M|||00:01:00\n1.0|CANCELLED|2||node0|1|\n"
FAILED = "1|FAILED|2|8000M|||00:10:00\n1.0|FAILED|2||node0|1|\n"
RUNNING = "1|RUNNING|2|16?|||00:10:00\n1.0|RUNNING|2||||\n"


def end(folder: Path, rows: str, *log: str) -> SlurmEnd | None:
    (folder / sacct.SACCT).write_text(rows)
    return sacct.read_end(folder, TRACE.recorded, log)


def test_the_task_that_took_the_most_memory_is_named(tmp_path):
    ended = end(tmp_path, CANCELLED, EXCEEDED)
    assert ended == SlurmEnd("OUT_OF_MEMORY", "1.5 GiB", "task 1 on node1", (1,))


def test_a_step_that_was_cancelled_for_another_reason_is_no_matter_of_memory(tmp_path):
    assert end(tmp_path, CANCELLED) is None
    assert end(tmp_path, FAILED) is None


def test_where_the_kernel_measures_the_accounting_says_so_and_srun_names_the_task(tmp_path):
    assert end(tmp_path, BY_KERNEL) == SlurmEnd("OUT_OF_MEMORY", "4 GiB", "task 0 on node0", (0,))
    ended = end(tmp_path, BY_KERNEL, "srun: error: node1: task 1: Out Of Memory")
    assert ended == SlurmEnd("OUT_OF_MEMORY", "4 GiB", "task 1 on node1", (1,))


@pytest.mark.parametrize("asked", ["16?", "", "2Gc", "x"])
def test_a_limit_that_cannot_be_read_is_not_told(tmp_path, asked):
    ended = end(tmp_path, BY_KERNEL.replace("8G", asked))
    assert ended is not None
    assert ended.limit == ""


def test_older_versions_tell_the_memory_of_each_node(tmp_path):
    ended = end(tmp_path, BY_KERNEL.replace("8G", "4Gn"))
    assert ended is not None
    assert ended.limit == "4 GiB"


def test_the_time_limit_is_that_of_the_job(tmp_path):
    assert end(tmp_path, AT_TIME_LIMIT) == SlurmEnd("TIMEOUT", "00:01:00")


@pytest.mark.parametrize("rows", ["", "\n\n", "a|b\n", "sacct: error: \x1b[2J", RUNNING, "|" * 6 + "\n"])
def test_what_says_nothing_is_nothing(tmp_path, rows):
    assert end(tmp_path, rows) is None


def program(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """A sacct that notes each of its calls, and is the first of this PATH."""
    file = folder / "bin" / "sacct"
    file.parent.mkdir()
    file.write_text(f'#!/bin/sh\necho "$@" >> {folder}/calls\n{script}')
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{file.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(sacct, "_PAUSE", 0.01)
    for name in IN_STEP:
        monkeypatch.delenv(name, raising=False)
    return folder / "calls"


def test_it_is_asked_until_the_database_has_heard_of_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(sacct, "SECONDS", 60.0)
    (tmp_path / "first").write_text(RUNNING)
    (tmp_path / "then").write_text(AT_TIME_LIMIT)
    calls = program(
        tmp_path,
        monkeypatch,
        f"cat {tmp_path}/first || cat {tmp_path}/then; rm -f {tmp_path}/first",
    )
    assert sacct.ask(tmp_path, TRACE) == SlurmEnd("TIMEOUT", "00:01:00")
    assert len(calls.read_text().splitlines()) == 2
    assert calls.read_text().startswith("--parsable2 --noheader --format=JobIDRaw,State,")


def test_one_that_does_not_answer_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(sacct, "SECONDS", 0.3)
    program(tmp_path, monkeypatch, "exec sleep 300")
    assert sacct.ask(tmp_path, TRACE) is None


def test_one_without_a_database_is_asked_once(tmp_path, monkeypatch):
    calls = program(tmp_path, monkeypatch, "echo Slurm accounting storage is disabled >&2; exit 1")
    assert sacct.ask(tmp_path, TRACE) is None
    assert len(calls.read_text().splitlines()) == 1


def test_it_is_not_asked_about_a_run_that_ended_well_or_is_not_slurms_or_is_our_own_step(
    tmp_path, monkeypatch
):
    calls = program(tmp_path, monkeypatch, "exit 0")
    ended_well = recorded(2, lambda rank, it: replace(it, environ=dict(IN_STEP)))
    assert ended_well.broken is None
    assert sacct.ask(tmp_path, ended_well) is None
    assert sacct.ask(tmp_path, recorded(2, lambda rank, it: replace(it, exit=None))) is None
    for name, value in IN_STEP.items():
        monkeypatch.setenv(name, value)
    assert sacct.ask(tmp_path, TRACE) is None
    assert not calls.exists()


def test_it_need_not_be_installed(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert sacct.ask(tmp_path, TRACE) is None
