"""The report gets out, whatever stdout is; the exit status is that of what was found."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import SECONDS, environment

COMMAND = f"{sys.executable} -m ddpdoctor check --select host --quiet"


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


def test_a_full_disk_behind_stdout_is_one_line(tmp_path: Path) -> None:
    done = shell(f"{COMMAND} > /dev/full", tmp_path)
    assert done.returncode == 2
    assert done.stderr == "ddpdoctor: error: stdout cannot be written: No space left on device\n"


def test_an_ascii_locale_gets_escapes(tmp_path: Path) -> None:
    folder = tmp_path / "Gewichte-ü"
    folder.mkdir()
    done = shell(f"{COMMAND} --checkpoint-dir {folder}", tmp_path, LC_ALL="C", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "Gewichte-\\xfc" in done.stdout
