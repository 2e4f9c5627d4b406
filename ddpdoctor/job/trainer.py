"""The bundled trainer as a job: a script that is known to be right."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import ddpdoctor
from ddpdoctor.job.command import Job, JobKind
from ddpdoctor.launch import Launch
from ddpdoctor.recorder.options import RecorderOptions

_LIMIT, _LIMIT_PER_RANK = 60.0, 5.0
"""Seconds that it may take; ten times what two cores need, which import torch once for each rank."""

_SHORT = ("train.epochs=2", "train.steps=8", "evaluation.every=2")


def trainer_script() -> Path:
    """The trainer: beside this package in a checkout, inside it where it is installed."""
    package = Path(ddpdoctor.__file__).parent
    places = (package / "sample_trainer", package.parent / "sample_trainer")
    return next(place / "trainer.py" for place in places if (place / "trainer.py").exists())


def bundled_trainer(launch: Launch, folder: Path, script: Path | None = None, *, forked: bool = True) -> Job:
    """The trainer on this node's ranks.

    Args:
        folder: of the run; each rank leaves its summary there.
        script: another one to run with the trainer's options; the trainer itself where none is given.
        forked: whether torch is imported once and the ranks are forked; else torchrun starts each anew.
    """
    settings = (f"parallel.backend={launch.backend}", f"run.folder={folder / 'out'}", *_SHORT)
    words = (str(script or trainer_script()), *settings)
    return Job(JobKind.SCRIPT, words, RecorderOptions(full=True), bundled=True, forked=forked)


def trainer_launch(launch: Launch) -> Launch:
    """The launch of it: on this node alone, whatever the job's is, and on a free port."""
    return replace(
        launch, nnodes=1, spare_nodes=0, max_restarts=0, node_rank=0, rendezvous=(), explicit=frozenset()
    )


def trainer_deadline(launch: Launch) -> float:
    """When it has to be done if it begins now, on the monotonic clock."""
    return time.monotonic() + _LIMIT + _LIMIT_PER_RANK * launch.nproc
