"""What pytest itself watches: tests that are not marked slow launch nothing (tests/support/fast.py), no thread dies,
no file is left open."""

import subprocess
import sys

import pytest

from tests.support.command import ROOT, environment

TESTS = """
import subprocess, sys, threading
import pytest

@pytest.fixture(scope="module")
def launched():
    subprocess.run(["torchrun", "train.py"])

@pytest.mark.slow
def test_slow():
    subprocess.run(["torchrun", "train.py"])

def test_fixture(launched):
    pass

def test_torchrun():
    subprocess.run(["torchrun", "train.py"])

def test_module():
    subprocess.run([sys.executable, "-m", "torch.distributed.run", "train.py"])

def test_child():
    subprocess.run([sys.executable, "-c", "import torch"])

def test_child_of_a_child():
    subprocess.run(["sh", "-c", f"{sys.executable} -c 'import torch'; true"])

def test_thread_that_dies():
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()

def test_file_left_open():
    open(__file__)

def test_fast():
    import torch
    subprocess.run([sys.executable, "-c", "import json"])
"""
TORCHRUN, TORCH = "starts torchrun", "starts a process that imports torch"
EXPECTED = {
    "fixture": TORCHRUN,
    "torchrun": TORCHRUN,
    "module": TORCHRUN,
    "child": TORCH,
    "child_of_a_child": TORCH,
}


@pytest.mark.slow  # under the watcher it would itself be one that launches
def test_a_fast_test_that_launches_fails_and_so_does_a_warning(tmp_path):
    (tmp_path / "test_all.py").write_text(TESTS)
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").touch()  # the real one takes seconds
    (tmp_path / "torchrun").write_text("#!/bin/sh\n")
    (tmp_path / "torchrun").chmod(0o700)
    options = ("-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-p", "tests.support.fast", "-rEf", "test_all.py"],
        cwd=tmp_path,
        env=environment({"PYTHONPATH": str(tmp_path), "PATH": f"{tmp_path}:/usr/bin:/bin", "COLUMNS": "200"}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "FAILED test_all.py::test_thread_that_dies" in done.stdout
    assert "FAILED test_all.py::test_file_left_open" in done.stdout
    errors = [line for line in done.stdout.splitlines() if line.startswith("ERROR ")]
    assert len(errors) == len(EXPECTED), done.stdout + done.stderr
    for name, start in EXPECTED.items():
        (line,) = (line for line in errors if f"::test_{name} " in line)
        assert f"not marked slow, and it {start}" in line
    assert "2 failed, 7 passed, 5 errors" in done.stdout
