"""What the machine refuses is told in one sentence, before anything runs, and never as a bug of ddpdoctor."""

import errno
from pathlib import Path

import pytest

from ddpdoctor.cli import app, run
from ddpdoctor.files import in_place_of
from tests.support.machines import on_machine

HOST = ["check", "--select", "host", "--quiet"]
NEEDS = "a run needs a folder with 16 MiB of free space"
FULL = "mount -t tmpfs -o size={size} none {folder}; head -c {used} /dev/zero > {folder}/fill 2>/dev/null || true"


@pytest.mark.parametrize("command", [HOST, ["train"], ["bench", "--quick"], ["watch", "--", "true"]])
def test_a_temporary_folder_that_is_not_there_is_told_before_the_run(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    assert run(command) == 2
    expected = f"TMPDIR='{tmp_path}/none' cannot be used: No such file or directory; {NEEDS}"
    assert capsys.readouterr().err == f"ddpdoctor: error: {expected}\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.root
@pytest.mark.parametrize("size", ["64k", "20m"])
def test_a_full_temporary_folder_is_told_with_its_space(size, tmp_path):
    used = FULL.format(size=size, used="20M", folder=tmp_path)
    done = on_machine(used, HOST, Path("/"), {"TMPDIR": str(tmp_path)})
    assert (done.status, done.out) == (2, "")
    reason = f"No space left on device (0 B free in {tmp_path}); {NEEDS}"
    assert done.err == f"ddpdoctor: error: TMPDIR='{tmp_path}' cannot be used: {reason}\n"


@pytest.mark.root
def test_no_temporary_folder_is_made_among_the_users_files(tmp_path):
    setup = "for f in /tmp /var/tmp; do mount -t tmpfs -o ro none $f; done"
    folder = Path(__file__).parents[2]
    before = set(folder.iterdir())
    done = on_machine(setup, HOST, folder, {"TMPDIR": ""})
    assert (done.status, set(folder.iterdir())) == (2, before)
    assert f"name a folder for temporary files by TMPDIR, {NEEDS.removeprefix('a run needs ')}" in done.err


@pytest.mark.root
def test_a_report_on_a_full_disk_is_refused_before_the_run_and_leaves_no_file(tmp_path):
    used = FULL.format(size="256k", used="300k", folder=tmp_path)
    done = on_machine(
        f"{used}; trap 'ls {tmp_path}' EXIT", [*HOST, "--output", f"{tmp_path}/report.txt"], Path("/")
    )
    assert done.status == 2
    assert "cannot be written: No space left on device (0 B free in " in done.err
    assert "report.txt" not in done.out


def test_a_report_that_is_refused_leaves_no_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run([*HOST, "--output", "report.txt", "--master-port", "0"]) == 2
    assert run([*HOST, "--output", "report.txt", "no_such_script.py"]) == 2
    assert list(tmp_path.iterdir()) == []


def write_half(report: Path) -> None:
    with in_place_of(report) as draft:
        draft.write_text("half")
        raise OSError(errno.ENOSPC, "full")


def test_a_report_takes_the_place_of_an_earlier_one_when_it_is_complete(tmp_path):
    report, link = tmp_path / "report.txt", tmp_path / "link.txt"
    report.write_text("earlier")
    report.chmod(0o640)
    link.symlink_to(report)
    with pytest.raises(OSError, match="full"):
        write_half(link)
    assert report.read_text() == "earlier"
    with in_place_of(link) as draft:
        draft.write_text("whole")
    assert (report.read_text(), report.stat().st_mode & 0o777) == ("whole", 0o640)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["link.txt", "report.txt"]
    assert link.is_symlink()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EMFILE, errno.EIO])
def test_what_the_machine_refuses_is_no_bug_of_ours(number, monkeypatch, capsys, tmp_path):
    def refuse() -> None:
        raise OSError(number, "refused", str(tmp_path / "file"))

    monkeypatch.setattr(app, "app", lambda *_, **__: refuse())
    assert run(["checks"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"ddpdoctor: error: '{tmp_path}/file': refused")


@pytest.mark.parametrize("command", [HOST, ["train"], ["fix", "run"], ["watch", "--", "true"]])
def test_a_working_directory_that_was_removed_is_told_in_a_line(command, tmp_path, monkeypatch, capsys):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert run(command) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "ddpdoctor: error: the working directory was removed; change to one that exists"


def test_other_errors_of_files_are_bugs_of_ours(monkeypatch):
    def miss() -> None:
        raise FileNotFoundError(errno.ENOENT, "missing", "facts.json")

    monkeypatch.setattr(app, "app", lambda *_, **__: miss())
    with pytest.raises(FileNotFoundError):
        run(["checks"])
