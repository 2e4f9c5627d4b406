"""A job of PyTorch under ``ddpdoctor check``: its folder stays, and the report says what would have been written."""

import shutil
import sys
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


def test_a_rank_without_a_record_is_named(project: Path) -> None:
    (project / "run.sh").write_text(
        f"export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={free_port()}\n"
        f"env -i RANK=1 $(env | grep -E '^(WORLD|MASTER)_') {sys.executable} train.py &\n"
        f"RANK=0 {sys.executable} train.py && wait\n"
    )
    notes = check(project, launch=("--", "bash", "run.sh"))["notes"]
    assert any(note.startswith("no record tells where rank 1 ran") for note in notes), notes
