import subprocess
import sys
from pathlib import Path

import ddpdoctor

HOLD = Path(ddpdoctor.__file__).parent / "job" / "hold.py"


def test_a_rank_begins_at_the_gate_and_stays_the_same_process(tmp_path):
    gate, script = tmp_path / "gate", tmp_path / "train.py"
    script.write_text("import os, sys; print(os.getpid(), *sys.argv[1:], __name__)")
    command = [sys.executable, str(HOLD), str(gate), str(script), "--epochs", "3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as held:
        try:
            held.wait(0.3)
        except subprocess.TimeoutExpired:
            gate.touch()
        printed, _ = held.communicate(timeout=60)
        assert gate.exists(), "it did not wait"
    assert printed.split() == [str(held.pid), "--epochs", "3", "__main__"]
