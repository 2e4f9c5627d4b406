"""The whole run under watch: what it says, with what status it ends, and what is left."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import ROOT, SECONDS, ddpdoctor, environment
from tests.support.processes import running_below, wait_until

pytestmark = pytest.mark.slow

FORKS = ROOT / "tests/job/scripts/forks.py"


def launch_line(mode: str, folder: Path) -> list[str]:
    return ["--", sys.executable, str(FORKS), mode, str(folder)]


def test_a_hang_ends_with_the_verdict_and_nothing_is_left(tmp_path: Path) -> None:
    own = ["--hang-after", "3", "--on-hang", "dump", "--format", "json"]
    done = ddpdoctor("watch", *own, *launch_line("lock", tmp_path), cwd=tmp_path)
    assert done.status == 1, done.err
    (finding,) = [one for one in done.report["findings"] if one["level"] == "fail"]
    assert (finding["code"], finding["ranks"]) == ("DD307", [1])
    assert (finding["where"]["function"], finding["where"]["line"]) == ("lock", 16)
    assert not running_below(tmp_path)
    kept = Path(done.report["run"]["folder"])
    assert kept.parent == tmp_path
    again = ddpdoctor("check", "--trace", str(kept), "--format", "json", cwd=tmp_path)
    assert again.report["findings"][0]["headline"] == finding["headline"]


def test_what_is_late_but_right_is_left_alone(tmp_path: Path) -> None:
    done = ddpdoctor("watch", "--hang-after", "2", *launch_line("late", tmp_path), cwd=tmp_path)
    assert done.status == 0, done.err + done.out
    # Two ranks write to one pipe, and Python may write a line and its end apart.
    assert sorted(re.findall(r"rank \d is done|\S+", done.out)) == ["rank 0 is done", "rank 1 is done"]


def test_a_job_that_is_left_alone_goes_on(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    own = ["--hang-after", "2", "--on-hang", "report"]
    command = [sys.executable, "-m", "ddpdoctor", "watch", *own, *launch_line("pause", tmp_path)]
    out, err = tmp_path / "out.txt", tmp_path / "err.txt"
    with out.open("w") as stdout, err.open("w") as stderr:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment({}), stdout=stdout, stderr=stderr)
        wait_until(lambda: "the job is left alone" in err.read_text(), SECONDS)
        (tmp_path / "pipe").write_text("go on")
        assert process.wait(SECONDS) == 0
    assert err.read_text().count("the job is left alone") == 1, err.read_text()
    assert "FAIL[DD307]: rank 1 waits in" in err.read_text()
    assert "rank 1 is done" in out.read_text()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_is_the_jobs(tmp_path: Path, number: signal.Signals, status: int) -> None:
    command = [sys.executable, "-m", "ddpdoctor", "watch", *launch_line("wait_for_a_signal", tmp_path)]
    out = tmp_path / "out.txt"
    with out.open("w") as file:
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment({}), stdout=file, stderr=file, start_new_session=True
        )
        wait_until(lambda: out.read_text().count("ready") == 2, SECONDS)
        os.kill(process.pid, number)
        assert process.wait(SECONDS) == status
    said = out.read_text()
    assert f"ddpdoctor: stopped by {number.name}; no process of it is left running" in said
    assert not running_below(tmp_path)
    assert said.count(" saved") == 2


def test_a_job_that_fails_keeps_its_status(tmp_path: Path) -> None:
    script = tmp_path / "fails.sh"
    script.write_text("echo out; echo err >&2; exit 85\n")
    done = ddpdoctor("watch", "--", "bash", str(script), cwd=tmp_path)
    assert done.status == 85
    assert done.out.startswith("out\n")
    assert done.err.startswith("err\n")


def test_a_job_that_is_no_training_ends_well(tmp_path: Path) -> None:
    done = ddpdoctor("watch", "--", "echo", "prepared", cwd=tmp_path)
    assert (done.status, done.out) == (0, "prepared\n"), done.err


def test_without_a_job_there_is_nothing_to_watch(tmp_path: Path) -> None:
    done = ddpdoctor("watch", cwd=tmp_path)
    assert (done.status, done.out) == (2, "")
    assert "watch requires a job: ddpdoctor watch -- torchrun train.py" in done.err
