"""A job that is killed at any moment, or for which a disk is full, leaves no trace either."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.command import ROOT
from tests.support.processes import carrying, wait_until
from tests.untouched import ways
from tests.untouched.support import MODES, command, state, why_not

pytestmark = pytest.mark.slow
SCRIPT = Path(ways.__file__)
NAMES = (
    "open_w",
    "open_r_plus",
    "os_replace",
    "rmtree_and_make_again",
    "a_row_of_a_database",
    "chmod",
    "makedirs",
)
"""Written in again and again, until the job is killed."""
_TIMES = 3
_MODES = [mode for mode in MODES if mode != "user namespace"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with files in it, and a script that writes without end."""
    folder = tmp_path / "project"
    for name in NAMES:
        (folder / name).mkdir(parents=True)
        ways.prepare(folder / name)
    text = (
        "import itertools, os, sys; from pathlib import Path\n"
        f"sys.path.insert(0, {str(SCRIPT.parent)!r}); import ways\n"
        f"for turn, name in enumerate(itertools.cycle({NAMES!r})):\n"
        f"    os.chdir(Path({str(folder)!r}, name))\n"
        f"    try: ways.WAYS[name]()\n"
        f"    except FileExistsError: pass\n"
        f"    if turn == len({NAMES!r}): Path({str(folder)!r}, 'turned').touch()\n"
    )
    (folder / "endless.py").write_text(text)
    return folder


def _of(run: subprocess.Popen[bytes], who: str) -> psutil.Process:
    """The command, its guard, or the script."""
    process = psutil.Process(run.pid)
    for _ in range(("command", "guard", "script").index(who)):
        wait_until(process.children)
        process = process.children()[0]
    return process


@pytest.mark.parametrize("who", ["command", "guard", "script"])
@pytest.mark.parametrize("mode", _MODES)
def test_killed_at_any_moment(mode: str, who: str, project: Path, tmp_path: Path) -> None:
    if reason := why_not(mode):
        pytest.skip(reason)
    before = state(project)
    for turn in range(_TIMES):
        folder = tmp_path / f"run{turn}"
        line, environ = command(mode, project, folder, sys.executable, "endless.py")
        with subprocess.Popen(line, cwd=ROOT, env=environ, stderr=subprocess.DEVNULL) as job:
            wait_until((folder / "record").is_dir)
            victim = _of(job, who)
            moment = random.uniform(0.0, 2.0)
            time.sleep(moment)
            victim.send_signal(signal.SIGKILL)
            job.wait()
        wait_until(lambda: not carrying(str(folder / "record"), "DDPDOCTOR_RECORD"))  # noqa: B023
        assert state(project) == before, moment


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


FILLS = """
for name in ("best.pt", "new.pt", "more.pt"):
    with open(name, "wb") as file:
        try:
            for _ in range(100):
                file.write(b"x" * 100_000)
        except OSError:
            print("full")
"""


@pytest.mark.root
@pytest.mark.parametrize("full", ["the user's", "the run folder's"])
@pytest.mark.parametrize("mode", _MODES)
def test_a_full_disk(mode: str, full: str, tmp_path: Path, small_disk: Path) -> None:
    here, there = (small_disk, tmp_path) if full == "the user's" else (tmp_path, small_disk)
    project = here / "project"
    project.mkdir()
    ways.prepare(project)
    (project / "fill.py").write_text(FILLS)
    before = state(project)
    line, environ = command(mode, project, there / "run", sys.executable, "fill.py")
    subprocess.run(line, cwd=ROOT, env=environ, check=False, stderr=subprocess.DEVNULL)
    assert state(project) == before
