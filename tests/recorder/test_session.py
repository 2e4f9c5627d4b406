"""What a record begins with."""

import sys

from ddpdoctor.recorder import session


def test_the_script_is_written_down_as_an_absolute_path(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["train.py", "--lr", "1"])
    assert session._main_script() == str(tmp_path / "train.py")
    monkeypatch.setattr(sys, "argv", ["-m"])
    assert session._main_script() == "-m"
