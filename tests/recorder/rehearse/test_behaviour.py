"""What a script can see of a rehearsal, asked in one process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def test_the_rehearsal_is_faithful_and_leaves_nothing():
    script = Path(__file__).with_name("behaviour.py")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)],
        timeout=120,
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "faithful\n"), done.stderr
