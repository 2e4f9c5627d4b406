import subprocess

import pytest

from ddpdoctor.hang import stacks
from ddpdoctor.hang.stacks import StacksUnavailable, take_stacks


@pytest.mark.parametrize("backtrace", ["", "\nStack backtrace:\n   0: py_spy::main\n   9: main\n"])
def test_what_py_spy_complains_of_is_told_without_its_backtrace(monkeypatch, backtrace):
    complaint = f"Error: Failed to suspend process\nReason: the process does not stop\n{backtrace}"
    failed = subprocess.CompletedProcess([], 1, "", complaint)
    monkeypatch.setattr(stacks, "py_spy", lambda: "py-spy")
    monkeypatch.setattr(stacks.subprocess, "run", lambda *arguments, **options: failed)
    why = take_stacks([7])[7]
    assert isinstance(why, StacksUnavailable)
    assert str(why) == "Reason: the process does not stop"
