"""A run folder belongs to one process, as long as that lives."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.sample_trainer.bundled import FOLDER, module

pytestmark = pytest.mark.slow  # it imports torch

run_folder = module("run_folder")
TrainerError = module("config").TrainerError

HOLDS = """
import os, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from run_folder import claim
claim(Path(sys.argv[2]))
if not os.fork():
    print(os.getpid(), flush=True)  # the child has let go of the folder
time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path) -> Iterator[tuple[int, int]]:
    """A process that has the folder, and a child of it."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(FOLDER), str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            yield process.pid, child
        finally:
            process.kill()
            os.kill(child, signal.SIGKILL)


def test_a_second_run_is_refused(holder, tmp_path):
    with pytest.raises(TrainerError, match="another run is training in"):
        run_folder.claim(tmp_path)


def test_a_folder_is_free_when_its_process_is_gone_though_a_worker_lives(holder, tmp_path):
    process, child = holder
    os.kill(process, signal.SIGKILL)
    os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
    run_folder.claim(tmp_path)
    os.kill(child, 0)
