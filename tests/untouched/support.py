"""Runs a job whose files are undone, and tells what a folder holds."""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from ddpdoctor.job.command import Job, JobKind
from ddpdoctor.job.job_folder import read_trace
from ddpdoctor.job.run import JobRun
from ddpdoctor.launch import Launch
from ddpdoctor.trace import Trace
from tests.support.command import ROOT, SECONDS, environment

MODES = ("view", "user namespace", "journal")
"""A private view as root; one as a user without further rights; and the journal."""

State = dict[str, tuple[object, ...]]


def state(folder: Path) -> State:
    """Content, mode and times of everything in a folder, and which names are of one file."""
    return {str(path.relative_to(folder)): _of(path, folder) for path in (folder, *sorted(folder.rglob("*")))}


def _of(path: Path, folder: Path) -> tuple[object, ...]:
    there = path.lstat()
    if path.is_symlink():
        content: object = str(path.readlink())
    elif path.is_dir():
        content = None
    elif path.is_file():
        content = hashlib.sha256(path.read_bytes()).hexdigest()
    else:
        content = "special"
    return (content, oct(there.st_mode), there.st_mtime_ns, there.st_uid, there.st_nlink)


def command(mode: str, working: Path, folder: Path, *words: str) -> tuple[list[str], dict[str, str]]:
    """The command line that runs a line of words with its files undone, and its environment."""
    restricted = ["setpriv", "--bounding-set", "-sys_admin"] if mode == "user namespace" else []
    program = [sys.executable, "-m", "tests.untouched.support", str(working), str(folder), *words]
    return [*restricted, *program], environment({"DDPDOCTOR_NO_VIEW": "1"} if mode == "journal" else {})


def run(mode: str, working: Path, folder: Path, *words: str) -> Trace:
    """Run it to its end."""
    line, environ = command(mode, working, folder, *words)
    subprocess.run(line, cwd=ROOT, env=environ, timeout=SECONDS, check=True)
    return read_trace(folder)


def why_not(mode: str) -> str | None:
    """Why a mode cannot be tested here."""
    if mode == "view" and os.geteuid():
        return "needs root"
    if mode == "user namespace" and (os.geteuid() or shutil.which("setpriv") is None):
        return "needs root, to be without its rights"
    return None


def main(working: Path, folder: Path, words: tuple[str, ...]) -> None:
    """Run the line."""
    os.chdir(working)
    folder.mkdir(parents=True)
    job = JobRun(Job(JobKind.LINE, words, private=True), Launch(), folder, if_orphaned=[folder])
    try:
        job.finish(time.monotonic() + SECONDS)
    finally:
        job.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), tuple(sys.argv[3:]))
