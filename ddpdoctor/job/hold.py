"""Holds a rank until it may begin: ``python hold.py GATE SCRIPT ARGS...`` becomes ``python -u SCRIPT ARGS...``.

torchrun takes a second to import torch before it starts its ranks. With this in place of the script, that second
passes while something else is examined, and no rank disturbs what is timed there. The process stays the same one.
"""

import os
import sys
import time

_LOOK_SECONDS = 0.01


def wait_for(gate: str) -> None:
    while not os.path.exists(gate):  # noqa: PTH110 - importing pathlib would take longer than the wait
        time.sleep(_LOOK_SECONDS)


if __name__ == "__main__":
    wait_for(sys.argv[1])
    os.execv(sys.executable, [sys.executable, "-u", *sys.argv[2:]])
