"""Runs short scripts under the recorder."""

import textwrap
from pathlib import Path
from typing import Any

from ddpdoctor.trace.recording import Recording
from tests.support.forked import Ran, run_forked

JOIN = """
import os, random, torch, torch.distributed as dist
from torch import nn
from torch.utils.data import *
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
"""


def run(folder: Path, text: str, *, nproc: int = 1, name: str = "train.py", **recorder: Any) -> Ran:
    """Run a script after the lines that every script begins with."""
    script = folder / name
    script.write_text(JOIN + textwrap.dedent(text))
    ran = run_forked(script, folder / f"ran {name}", nproc=nproc, **recorder)
    assert ran.statuses == (0,) * nproc, ran.errors
    for recording in recordings(ran):
        assert not recording.notes
    return ran


def recordings(ran: Ran) -> list[Recording]:
    """What was recorded of each rank."""
    return [one.recording for one in ran.trace.ranks if one.recording is not None]


def recorded(folder: Path, text: str, **recorder: Any) -> Recording:
    """What was recorded of a script's first rank."""
    return recordings(run(folder, text, **recorder))[0]
