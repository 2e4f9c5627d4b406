"""A program is read once, and again where what it says is no longer what is there."""

import pytest

from ddpdoctor.program import Program


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text("import data\nrun()\n")
    (tmp_path / "data.py").write_text("load()\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_is_read_once(folder):
    assert Program.of("train.py") is Program.of("train.py")


def test_a_copy_of_the_same_name_is_another_program(folder, monkeypatch):
    first = Program.of("train.py")
    copy = folder / "copy"
    copy.mkdir()
    (copy / "train.py").write_text("set_up()\nrun()\n")
    monkeypatch.chdir(copy)
    assert [call.where.line for call in Program.of("train.py").every_call()] == [1, 2]
    monkeypatch.chdir(folder)
    assert Program.of("train.py") is first


def test_a_module_that_changed_is_read_again(folder):
    before = Program.of("train.py")
    (folder / "data.py").write_text("def load():\n    pass\n")
    assert Program.of("train.py") is not before
    assert len(list(Program.of("train.py").every_call())) == 1
