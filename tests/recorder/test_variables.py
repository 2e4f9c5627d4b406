"""Variables of the launcher that a script sets."""

import os
from types import SimpleNamespace
from typing import Any

import pytest

from ddpdoctor.recorder.patch import after_call
from ddpdoctor.recorder.patches.calls import Calls, VariableSet


def test_a_setting_is_written_down_with_its_line_and_others_are_not(monkeypatch):
    written = []
    session: Any = SimpleNamespace(torch=None, event=written.append, here=lambda: "train.py:7")
    for name in ("MASTER_PORT", "RANK", "HOME_OF_DATA"):
        monkeypatch.setenv(name, "before")
    kind = type(os.environ)
    monkeypatch.setattr(kind, "__setitem__", after_call(Calls(session).variable_set)(kind.__setitem__))
    os.environ["MASTER_PORT"] = "12355"
    os.environ["HOME_OF_DATA"] = "/data"
    os.environ.setdefault("RANK", "0")
    assert written == [VariableSet("MASTER_PORT", "12355", "train.py:7")]
    with pytest.raises(TypeError):
        os.environ["RANK"] = 0
    assert (os.environ["HOME_OF_DATA"], os.environ["RANK"], len(written)) == ("/data", "before", 1)
