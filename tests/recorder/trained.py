"""Runs short scripts that train under the recorder."""

import textwrap
from pathlib import Path

from ddpdoctor.trace.recording import Recording
from tests.support.forked import Ran, run_forked

HEAD = """
import contextlib, copy, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
"""


def write(folder: Path, body: str) -> Path:
    """The script, begun and ended as every script is."""
    script = folder / "train.py"
    script.write_text(f"{HEAD}{textwrap.dedent(body)}\ndist.destroy_process_group()\n")
    return script


def run(folder: Path, body: str, nproc: int = 2, **options) -> Ran:
    """Run it on forked ranks, at full length."""
    ran = run_forked(write(folder, body), folder / "ran", nproc=nproc, full=True, **options)
    assert not any(ran.statuses), ran.errors
    return ran


def record(folder: Path, body: str, rank: int = 0, nproc: int = 2) -> Recording:
    """What was recorded of one rank."""
    recording = run(folder, body, nproc).trace.recordings()[rank]
    assert recording.notes == ()
    return recording


def line_of(folder: Path, text: str) -> int:
    """The number of the first line that holds this text."""
    lines = (folder / "train.py").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def reduced(recording: Recording) -> list[list[tuple[int, ...]]]:
    """The wrappers that each backward of each training step reduced."""
    return [[one.reduced for one in step.backwards] for step in recording.steps]
