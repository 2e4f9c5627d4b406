"""--apply: all files or none, and each old or new."""

import os
import subprocess

import pytest

from ddpdoctor.fix.write import Refused, write_all


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


def test_uncommitted_changes_are_refused_without_force(files, tmp_path):
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    (tmp_path / "b.py").write_bytes(b"edited\n")
    with pytest.raises(Refused, match="uncommitted changes"):
        write_all(files, before(files))
    assert (tmp_path / "a.py").read_bytes() == b"old\n"
    write_all(files, before(files), force=True)
    assert (tmp_path / "b.py").read_bytes() == b"new\n"


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
