"""A job of PyTorch under ``ddpdoctor check``: its folder stays, and the report says what would have been written."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.command import ddpdoctor, free_port
from tests.untouched.support import state

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).with_name("train.py")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder in which the job ran before."""
    folder = tmp_path / "project"
    (folder / "sharded").mkdir(parents=True)
    shutil.copy(SCRIPT, folder)
    for name in ("best.pt", "last.pt"):
        torch.save(torch.nn.Linear(4, 4).state_dict(), folder / name)
    (folder / "history.csv").write_text("rank\n")
    (folder / "gone.txt").write_text("here")
    (folder / "sharded" / ".metadata").write_bytes(b"earlier")
    return folder


def check(
    folder: Path, *options: str, launch: tuple[str, ...] = ("train.py",), **environ: str
) -> dict[str, Any]:
    """The report of a check, in which nothing is found."""
    words = ("check", "--ignore", "host,group", "--format", "json", "-q", *options, *launch)
    done = ddpdoctor(*words, cwd=folder, env=environ)
    assert done.status == 0, done.out + done.err
    return done.report


@pytest.mark.parametrize("environ", [{"SHELL_TOO": "1"}, {"DDPDOCTOR_NO_VIEW": "1"}], ids=["view", "journal"])
def test_its_folder_stays_as_it_was(project: Path, environ: dict[str, str]) -> None:
    before = state(project)
    report = check(project, **environ)
    assert state(project) == before
    written = {file["path"]: file for file in report["run"]["would_write"]}
    assert {"best.pt", "last.pt", "history.csv", "runs/log.txt", "sharded/.metadata"} <= set(written)
    assert written["best.pt"]["existed"]
    assert not written["runs/log.txt"]["existed"]
    assert written.get("gone.txt", {}).get("removed", "SHELL_TOO" not in environ)
    notes = "\n".join(report["notes"])
    assert "loaded what was there before the run, as the script would: last.pt" in notes
    assert "would write: best.pt (" in notes
    assert "not undone" not in notes
    assert ("no private view of the file system" in notes) == ("DDPDOCTOR_NO_VIEW" in environ)


def test_what_nobody_heard_of_is_told(project: Path) -> None:
    report = check(project, SHELL_TOO="1", DDPDOCTOR_NO_VIEW="1")
    assert "not undone, since no Python code did it: gone.txt, shell.txt" in report["notes"]
    assert not (project / "runs").exists()


def test_files_are_kept_where_that_is_asked_for(project: Path) -> None:
    before = state(project)
    report = check(project, "--keep-files")
    assert "would_write" not in report["run"]
    after = state(project)
    assert (project / "runs" / "log.txt").read_text() == "log"
    assert after["best.pt"] != before["best.pt"]


@contextmanager
def ssh_server(folder: Path) -> Iterator[str]:
    """A server of this machine's for this test, and the command that runs another one by it."""
    server = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
    if server is None or os.geteuid():
        pytest.skip("needs root and sshd")
    port, options = free_port(), [f"HostKey={folder}/host", f"AuthorizedKeysFile={folder}/user.pub"]
    folder.mkdir()
    for name in ("host", "user"):
        key = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name))
        subprocess.run(key, check=True)
    Path("/run/sshd").mkdir(exist_ok=True)
    words = [server, "-D", "-e", "-p", str(port), "-f", "/dev/null"]
    for option in (*options, "StrictModes=no", "UsePAM=no", "ListenAddress=127.0.0.1"):
        words += ["-o", option]
    with subprocess.Popen(words, stderr=subprocess.PIPE) as daemon:
        assert daemon.stderr is not None
        assert any(b"listening" in line for line in daemon.stderr)
        asks = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
        try:
            yield f"ssh -p {port} -i {folder}/user {asks} 127.0.0.1"
        finally:
            daemon.terminate()


@pytest.mark.parametrize("by", ["env", "ssh"])
def test_a_rank_without_a_record_is_named(by: str, project: Path, tmp_path: Path) -> None:
    """It has no view and no variable of the check: what it writes stays, and that is told."""
    group = f"WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={free_port()}"
    with ssh_server(tmp_path / "keys") if by == "ssh" else nullcontext("env -i sh -c") as elsewhere:
        (project / "run.sh").write_text(
            f"{elsewhere} 'cd {project} && {group} RANK=1 {sys.executable} train.py; echo > left.txt' &\n"
            f"{group} RANK=0 {sys.executable} train.py && wait\n"
        )
        notes = check(project, launch=("--", "bash", "run.sh"))["notes"]
    assert any(note.startswith("no record tells where rank 1 ran") for note in notes), notes
    assert (project / "left.txt").exists() == (by == "ssh")
    assert torch.load(project / "best.pt").keys() == {"weight", "bias"}
    assert not (project / "runs").exists()
