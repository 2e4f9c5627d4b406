"""What a private view does not cover: folders that a user cannot cover, and processes that somebody else starts."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ddpdoctor.job.journal import play_back
from ddpdoctor.recorder.originals import Originals
from tests.untouched.support import run, state, why_not

WRITES = (
    "import os, sys; os.chdir(sys.argv[1]); open('best.pt', 'w').write('new'); open('new.pt', 'w').close()"
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "best.pt").write_text("weights")
    return folder


@pytest.mark.slow
def test_a_process_that_another_program_starts_has_its_files_kept(project: Path, tmp_path: Path) -> None:
    if (reason := why_not("view")) or shutil.which("nsenter") is None:
        pytest.skip(reason or "needs nsenter")
    before = state(project)
    words = ("nsenter", f"--mount=/proc/{os.getpid()}/ns/mnt", sys.executable, "-c", WRITES, str(project))
    written = run("view", project, tmp_path / "run", *words).written
    assert state(project) == before
    assert written is not None
    assert (written.outside, written.why_not) == ((os.uname().nodename,), None)
    assert {Path(file.path).name: file.existed for file in written.files} == {
        "best.pt": True,
        "new.pt": False,
    }


@pytest.mark.slow
def test_a_folder_of_another_group_is_named_and_its_files_are_kept(project: Path, tmp_path: Path) -> None:
    if reason := why_not("user namespace"):
        pytest.skip(reason)
    shared = project / "runs" / "shared"
    shutil.copytree(project, shared)
    for path in (shared, shared / "best.pt"):
        os.chown(path, -1, 12345)
    before = state(project)
    written = run(
        "user namespace", project, tmp_path / "run", sys.executable, "-c", WRITES, str(shared)
    ).written
    assert state(project) == before
    assert written is not None
    assert {Path(file.path).name for file in written.files} == {"best.pt", "new.pt"}
    assert str(shared) in written.uncovered
    assert str(project) not in written.uncovered


SERVES = (
    "import socket, sys; server = socket.socket(socket.AF_UNIX); server.bind(sys.argv[1]); server.listen()\n"
    "print(flush=True); server.accept()"
)
ASKS = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"


@pytest.mark.root
@pytest.mark.slow
def test_a_server_in_run_is_reached_from_another_network_namespace(project: Path, tmp_path: Path) -> None:
    """As munged is, which srun asks; in a container /run may lie on the disk of /."""
    address = f"/run/ddpdoctor-{os.getpid()}"
    server = ["unshare", "--net", sys.executable, "-c", SERVES, address]
    with subprocess.Popen(server, stdout=subprocess.PIPE) as serves:
        try:
            assert serves.stdout is not None
            serves.stdout.readline()
            trace = run("view", project, tmp_path / "run", sys.executable, "-c", ASKS, address)
        finally:
            serves.kill()
            Path(address).unlink(missing_ok=True)
    assert trace.status == 0, trace.log


@pytest.mark.parametrize("mount", [None, "/elsewhere"])
def test_the_file_of_another_host_is_left_alone(mount: str | None, project: Path, tmp_path: Path) -> None:
    before, journal = state(project), tmp_path / "layers" / "originals"
    journal.mkdir(parents=True)
    entry = {"kind": "absent", "path": str(project / "best.pt"), "host": "another", "mount": mount, "time": 1}
    (journal / "1.json").write_text(json.dumps(entry))
    assert play_back(journal)[0]["failed"] == "on another"
    assert state(project) == before


def test_the_file_of_another_host_on_the_disk_of_the_journal_is_undone(project: Path, tmp_path: Path) -> None:
    journal = tmp_path / "layers" / "originals"
    journal.mkdir(parents=True)
    mount = tmp_path
    while not mount.is_mount():
        mount = mount.parent
    entry = {
        "kind": "absent",
        "path": str(project / "best.pt"),
        "host": "another",
        "mount": str(mount),
        "time": 1,
    }
    (journal / "1.json").write_text(json.dumps(entry))
    play_back(journal)
    assert not (project / "best.pt").exists()


@pytest.mark.slow
def test_shared_memory_that_python_code_writes_to_is_undone_without_a_view(
    project: Path, tmp_path: Path
) -> None:
    shared = Path(f"/dev/shm/ddpdoctor-test-{os.getpid()}")
    if not os.access(shared.parent, os.W_OK):
        pytest.skip("needs /dev/shm")
    shutil.copytree(project, shared)
    before = state(shared)
    try:
        written = run("journal", project, tmp_path / "run", sys.executable, "-c", WRITES, str(shared)).written
        assert state(shared) == before
    finally:
        shutil.rmtree(shared)
    assert written is not None
    assert {Path(file.path).name for file in written.files} == {"best.pt", "new.pt"}


def test_a_file_stays_whole_where_the_disk_of_the_journal_is_full(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that no mark can be written beside the second name of the file."""
    journal = tmp_path / "layers" / "originals"
    journal.mkdir(parents=True)
    originals = Originals(str(journal), ())
    monkeypatch.setattr(originals, "_mark", lambda _: "/nonexistent/mark")
    before = state(project)
    originals.hear("open", (str(project / "best.pt"), "r+", os.O_RDWR))
    originals.note({"kind": "missed", "path": "a name without a folder"})
    assert (project / "best.pt").read_text() == "weights"
    (project / "best.pt").write_text("new")
    play_back(journal)
    assert state(project)["best.pt"][0] == before["best.pt"][0]
