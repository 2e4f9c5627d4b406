"""The report gets out, whatever stdout is; the exit status is that of what was found."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import SECONDS, environment

pytestmark = pytest.mark.slow

COMMAND = f"{sys.executable} -m ddpdoctor check --select host --ignore DD002,DD010 --quiet"
"""Without the checks that would find another test's group on the port."""


def shell(line: str, folder: Path, **env: str) -> "subprocess.CompletedProcess[str]":
    command = ["bash", "-c", line]
    return subprocess.run(
        command,
        cwd=folder,
        env=environment(env),
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )


@pytest.mark.parametrize("streams", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_change_nothing(streams: str, tmp_path: Path) -> None:
    done = shell(f"{COMMAND} {streams}", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_has_gone_leaves_the_status(tmp_path: Path) -> None:
    done = shell(f"{COMMAND} | true; echo ${{PIPESTATUS[0]}}", tmp_path, MASTER_ADDR="nosuch.invalid")
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_progress_that_nobody_reads_changes_nothing(tmp_path: Path) -> None:
    command = COMMAND.replace("--quiet", "")
    done = shell(f"{command} 2>&1 >report.txt | true; echo ${{PIPESTATUS[0]}}", tmp_path)
    assert done.stdout == "0\n"
    assert "passed" in (tmp_path / "report.txt").read_text()


def test_the_verdict_is_said_where_the_report_is_in_a_file(tmp_path: Path) -> None:
    done = shell(f"{COMMAND.replace('--quiet', '')} --output report.html", tmp_path)
    assert done.stderr.splitlines()[-1].startswith("report.html: No problem found: ")
    assert done.stdout == ""


def test_a_pipe_with_a_name_gets_the_report(tmp_path: Path) -> None:
    done = shell(f"mkfifo pipe; cat pipe & {COMMAND} --output pipe; wait", tmp_path)
    assert "passed" in done.stdout


def test_a_folder_whose_name_is_too_long_is_a_finding(tmp_path: Path) -> None:
    done = shell(f"{COMMAND} --checkpoint-dir {'long' * 100}", tmp_path, TMPDIR=str(tmp_path))
    assert (done.returncode, done.stderr) == (1, "")
    assert "FAIL[DD019]" in done.stdout


def test_no_number_is_too_long(tmp_path: Path) -> None:
    many = "1" * 5000
    done = shell(COMMAND, tmp_path, MASTER_PORT=many, OMP_NUM_THREADS=many, TMPDIR=str(tmp_path))
    assert (done.returncode, done.stderr) == (1, "")
    assert "1 problem: " in done.stdout


def test_a_full_disk_behind_stdout_is_one_line(tmp_path: Path) -> None:
    done = shell(f"{COMMAND} > /dev/full", tmp_path)
    assert done.returncode == 2
    assert done.stderr == "ddpdoctor: error: stdout cannot be written: No space left on device\n"


def test_an_ascii_locale_gets_escapes(tmp_path: Path) -> None:
    folder = tmp_path / "Gewichte-ü"
    folder.mkdir()
    command = f"{COMMAND} --verbose --checkpoint-dir {folder}"
    done = shell(command, tmp_path, LC_ALL="C", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "Gewichte-\\xfc" in done.stdout
