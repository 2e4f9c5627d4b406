"""A job that is killed at any moment, or for which a disk is full, leaves no trace either."""

import itertools
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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
_WHO = ("command", "guard", "script", "rank")
"""Each is the parent of the next one."""
_MOMENTS, _SIDE_BY_SIDE = 15, 4
_MODES = [mode for mode in MODES if mode != "user namespace"]


def _project(folder: Path) -> Path:
    """A folder with files in it, and a script of two processes that write without end."""
    for name in NAMES:
        (folder / name).mkdir(parents=True)
        ways.prepare(folder / name)
    text = (
        "import itertools, os, sys; from pathlib import Path\n"
        f"sys.path.insert(0, {str(SCRIPT.parent)!r}); import ways\n"
        f"names = {NAMES!r}[::-1 if os.fork() else 1]\n"
        "for name in itertools.cycle(names):\n"
        f"    os.chdir(Path({str(folder)!r}, name))\n"
        "    try: ways.WAYS[name]()\n"
        "    except (OSError, ways.sqlite3.Error): pass\n"
    )
    (folder / "endless.py").write_text(text)
    return folder


def _of(run: subprocess.Popen[bytes], who: str) -> psutil.Process:
    process = psutil.Process(run.pid)
    for _ in range(_WHO.index(who)):
        wait_until(process.children)
        process = process.children()[0]
    return process


def _kill(mode: str, who: str, moment: float, place: Path) -> str | None:
    """Kill somebody after so many seconds of writing; what is then not as it was, if anything."""
    project, folder = _project(place / "project"), place / "run"
    before = state(project)
    line, environ = command(mode, project, folder, sys.executable, "endless.py")
    with subprocess.Popen(line, cwd=ROOT, env=environ, stderr=subprocess.DEVNULL) as job:
        wait_until((folder / "record").is_dir)
        victim = _of(job, who)
        time.sleep(moment)
        victim.send_signal(signal.SIGKILL)
        if who == "rank":  # of which the other goes on
            job.terminate()
        job.wait()
    wait_until(lambda: not carrying(str(folder / "record"), "DDPDOCTOR_RECORD"))
    after = state(project)
    changed = [path for path in {**before, **after} if before.get(path) != after.get(path)]
    return f"{who} after {moment:.3f} s: {changed}" if changed else None


@pytest.mark.parametrize("mode", _MODES)
def test_killed_at_any_moment(mode: str, tmp_path: Path) -> None:
    if reason := why_not(mode):
        pytest.skip(reason)
    victims = itertools.islice(itertools.cycle(_WHO), _MOMENTS)
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        kills = [
            pool.submit(_kill, mode, who, random.uniform(0.0, 2.0), tmp_path / str(number))
            for number, who in enumerate(victims)
        ]
    assert [told for kill in kills if (told := kill.result())] == []


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
