"""The trainer on one rank of a job that dies by SIGKILL at a chosen place. Run by test_resume.py.

    dies.py RANK WHERE NUMBER ORDER TRAINER ARGS...

WHERE is ``line`` for any line of the trainer's own code after the first step began, ``save`` for a line of the code
that writes files, ``rename`` for the moment before a checkpoint gets its name and ``named`` for the moment after it;
NUMBER says which of them. ORDER is a file that takes a digest of every batch that is trained on.
"""

import os
import runpy
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from torch.nn.parallel import DistributedDataParallel

RANK, WHERE, NUMBER, ORDER, TRAINER = sys.argv[1:6]
FOLDER = Path(TRAINER).parent
FILES = str(FOLDER / "checkpoint_files.py")
RENAME = next(
    n for n, line in enumerate(Path(FILES).read_text().splitlines(), 1) if "part.replace(path)" in line
)


class Death:
    """Counts what is run, and ends the process when it has come to the place."""

    def __init__(self) -> None:
        self.left = int(NUMBER)
        self.began = False

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Of functions outside the trainer nothing is seen."""
        file = frame.f_code.co_filename
        if not file.startswith(str(FOLDER)) or (WHERE != "line" and file != FILES):
            return None
        self.see(frame, event)
        return self.trace_line

    def trace_line(self, frame: FrameType, event: str, argument: Any) -> Any:
        self.see(frame, event)
        return self.trace_line

    def see(self, frame: FrameType, event: str) -> None:
        if not self.began:
            return
        self.left -= {
            "line": event == "line",
            "save": event == "line",
            "rename": event == "line" and frame.f_lineno == RENAME,
            "named": event == "call" and frame.f_code.co_name == "_sync_folder",
        }[WHERE]
        if self.left == 0:
            os.killpg(
                0, signal.SIGKILL
            )  # with the workers, which would hold its connections open for seconds


death = Death()
forward = DistributedDataParallel.forward


def watched(self: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    """DDP's forward; the step before a resume, which is there to lay out the buckets, has inputs of zeros."""
    if self.training and inputs.any():
        death.began = True
        with Path(f"{ORDER}.{os.environ['RANK']}").open("a") as file:
            file.write(f"{inputs.flatten().tolist()}\n")
    return forward(self, inputs, *args, **kwargs)


DistributedDataParallel.forward = watched  # type: ignore[method-assign]
if os.environ["RANK"] == RANK:
    sys.settrace(death.trace)
sys.argv[:] = sys.argv[5:]
sys.path[0] = str(FOLDER)
runpy.run_path(TRAINER, run_name="__main__")
