"""--apply: all files or none, and each old or new."""

import os
import subprocess
import sys

import pytest

from ddpdoctor.fix.changed_copy import Refused, write_all


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / "a.py", tmp_path / "b.py"]
    for path in paths:
        path.write_bytes(b"old\n")
    return {path: b"new\n" for path in paths}


def before(files):
    return {path: path.read_bytes() for path in files}


def test_the_files_are_written_with_their_modes(files, tmp_path):
    (tmp_path / "a.py").chmod(0o754)
    write_all(files, before(files))
    assert [path.read_bytes() for path in files] == [b"new\n", b"new\n"]
    assert (tmp_path / "a.py").stat().st_mode & 0o777 == 0o754
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.py", "b.py"]


def test_a_link_stays_one(files, tmp_path):
    (tmp_path / "link.py").symlink_to("a.py")
    write_all({tmp_path / "link.py": b"new\n"}, {tmp_path / "link.py": b"old\n"})
    assert (tmp_path / "link.py").is_symlink()
    assert (tmp_path / "a.py").read_bytes() == b"new\n"


def test_a_file_that_changed_meanwhile_keeps_all_from_being_written(files, tmp_path):
    known = before(files)
    (tmp_path / "b.py").write_bytes(b"edited\n")
    with pytest.raises(Refused, match="changed meanwhile"):
        write_all(files, known)
    assert (tmp_path / "a.py").read_bytes() == b"old\n"


def git(folder, *words):
    named = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com"]
    subprocess.run([*named, *words], cwd=folder, check=True)


def test_uncommitted_changes_are_refused_without_force(files, tmp_path):
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "all")
    (tmp_path / "b.py").write_bytes(b"edited\n")
    with pytest.raises(Refused, match=r"b\.py' has uncommitted changes; commit them, or use --force"):
        write_all(files, before(files))
    assert (tmp_path / "a.py").read_bytes() == b"old\n"
    write_all(files, before(files), force=True)
    assert (tmp_path / "b.py").read_bytes() == b"new\n"


def test_a_file_of_which_git_has_no_copy_is_refused_unless_git_ignores_it(files, tmp_path):
    git(tmp_path, "init", "-q")
    with pytest.raises(Refused, match=r"a\.py' is not tracked by git; commit it, or use --force"):
        write_all(files, before(files))
    (tmp_path / ".gitignore").write_text("*.py\n")
    write_all(files, before(files))
    assert (tmp_path / "a.py").read_bytes() == b"new\n"


def test_a_repository_that_git_cannot_read_is_refused(files, tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / ".git" / "config").write_text("[core\n")
    with pytest.raises(Refused, match=r"in a repository that git cannot read .*, or use --force"):
        write_all(files, before(files))


@pytest.mark.parametrize("call", range(8))
def test_an_interruption_leaves_each_file_old_or_new(call, files, tmp_path, monkeypatch):
    """At each step that touches the disk, in turn."""
    left = [call]

    def interrupted(real):
        def step(*args, **kwargs):
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            return real(*args, **kwargs)

        return step

    known = before(files)
    monkeypatch.setattr(os, "fsync", interrupted(os.fsync))
    monkeypatch.setattr("pathlib.Path.replace", interrupted(type(tmp_path).replace))
    monkeypatch.setattr("tempfile.mkstemp", interrupted(__import__("tempfile").mkstemp))
    try:
        write_all(files, known)
    except KeyboardInterrupt:
        assert call < 6
    assert {path.read_bytes() for path in files} <= {b"old\n", b"new\n"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.py", "b.py"]


def test_a_folder_that_cannot_be_written(files, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(Refused, match="read-only"):
        write_all(files, before(files))
    assert before(files) == dict.fromkeys(files, b"old\n")


def killed(folder, at):
    """A process that writes two files and is killed at this step that touches the disk."""
    code = f"""
import os, signal, tempfile
from pathlib import Path
from ddpdoctor.fix.changed_copy import write_all

left = [{at}]

def dies(real):
    def step(*args, **kwargs):
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **kwargs)
    return step

os.fsync, Path.replace, tempfile.mkstemp = dies(os.fsync), dies(Path.replace), dies(tempfile.mkstemp)
Path.chmod, Path.unlink = dies(Path.chmod), dies(Path.unlink)
paths = [Path({str(folder)!r}) / name for name in ("a.py", "b.py")]
write_all(dict.fromkeys(paths, b"new\\n" * 50_000), dict.fromkeys(paths, b"old\\n"))
"""
    return subprocess.run([sys.executable, "-c", code], cwd=folder, check=False).returncode


def test_a_process_that_is_killed_leaves_each_file_old_or_new(files):
    statuses, seen = [], set()
    for at in range(11):
        for path in files:
            path.write_bytes(b"old\n")
        statuses.append(killed(next(iter(files)).parent, at))
        contents = tuple(path.read_bytes()[:4] for path in files)
        assert {path.read_bytes() for path in files} <= {b"old\n", b"new\n" * 50_000}
        seen.add(contents)
    assert statuses == [-9] * 10 + [0]
    assert (b"old\n", b"old\n") in seen
    assert (b"new\n", b"old\n") in seen  # each file by itself
    assert (b"new\n", b"new\n") in seen
