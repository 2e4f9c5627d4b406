"""The environment that a process has now."""

import os
import subprocess
import sys

import pytest

from ddpdoctor.host.proc import live_environ
from tests.support.command import environment

SETS = """
import os, sys
os.environ.update(RANK="3", WORLD_SIZE="4")
del os.environ["LOCAL_RANK"]
print(flush=True)
sys.stdin.read()
"""
NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's /proc")


def test_what_a_process_has_set_itself_is_read():
    given = environment({"LOCAL_RANK": "1", "MASTER_ADDR": "node0"})
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-S", "-c", SETS], env=given, **pipes) as process:
        process.stdout.readline()
        assert live_environ(process.pid, NAMES) == {"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "node0"}
        process.stdin.close()


def test_a_long_value_is_cut_off(monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "x" * 10_000)
    assert live_environ(os.getpid(), NAMES)["MASTER_ADDR"].startswith("xxx")
    assert len(live_environ(os.getpid(), NAMES)["MASTER_ADDR"]) < 1000


def test_a_process_that_is_gone_has_none():
    done = subprocess.Popen([sys.executable, "-S", "-c", ""])
    done.wait()
    assert live_environ(done.pid, NAMES) == {}
