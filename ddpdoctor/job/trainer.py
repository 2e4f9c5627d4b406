"""The bundled trainer: as a job that is known to be right, and as a user runs it."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ddpdoctor
from ddpdoctor.job import torchrun
from ddpdoctor.job.command import Job, JobKind
from ddpdoctor.job.guard import Ending
from ddpdoctor.job.guarded import Running, new_run_id, start
from ddpdoctor.job.output_forwarding import Stream
from ddpdoctor.launch import Launch
from ddpdoctor.recorder.options import RecorderOptions
from ddpdoctor.redact import escape
from ddpdoctor.text import ranks_phrase

_LIMIT, _LIMIT_PER_RANK = 60.0, 5.0
"""Seconds that it may take; ten times what two cores need, which import torch once for each rank."""
_SHORT = ("train.epochs=2", "train.steps=8", "evaluation.every=2")
GRACE_SECONDS = 2.0
"""Between SIGTERM and SIGKILL: for the trainer to note that it was stopped."""
REFUSED = 2
"""The exit status by which the trainer says that it was asked for what cannot be."""
FAILED = 1
"""torchrun's exit status where a rank failed."""
_READ = """import json, pathlib, sys
sys.path.insert(0, sys.argv[1])
from config import TrainerError, read_config
try:
    config = read_config(pathlib.Path(sys.argv[2]) if sys.argv[2] else None, sys.argv[3:])
except TrainerError as error:
    sys.exit(str(error))
print(json.dumps(config.as_dict()))
"""
"""The trainer's own reading of a configuration, which needs no torch."""
_OF_ITS_OWN = {signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGINT, signal.SIGKILL, signal.SIGSEGV}
"""Signals that end a rank first: torchrun ends the others by SIGTERM, and one that lost its peer may abort."""


def trainer_script() -> Path:
    """The trainer: beside this package in a checkout, inside it where it is installed."""
    package = Path(ddpdoctor.__file__).parent
    places = (package / "sample_trainer", package.parent / "sample_trainer")
    return next(place / "trainer.py" for place in places if (place / "trainer.py").exists())


def bundled_trainer(launch: Launch, folder: Path, script: Path | None = None) -> Job:
    """The trainer, or another script with its options, on this node's ranks; each leaves its summary in the folder."""
    settings = (f"parallel.backend={launch.backend}", f"run.folder={folder / 'out'}", *_SHORT)
    words = (str(script or trainer_script()), *settings)
    return Job(JobKind.SCRIPT, words, RecorderOptions(full=True), bundled=True)


def trainer_launch(launch: Launch) -> Launch:
    """The launch of it: on this node alone, whatever the job's is, and on a free port."""
    return replace(
        launch, nnodes=1, spare_nodes=0, max_restarts=0, node_rank=0, rendezvous=(), explicit=frozenset()
    )


def trainer_deadline(launch: Launch) -> float:
    """When it has to be done if it begins now, on the monotonic clock."""
    return time.monotonic() + _LIMIT + _LIMIT_PER_RANK * launch.nproc


class BadConfiguration(Exception):
    """The trainer refuses it; the message says why."""


def bundled_configs() -> dict[str, Path]:
    """The configurations that come with the trainer, by name."""
    return {path.stem: path for path in sorted((trainer_script().parent / "configs").glob("*.yaml"))}


def about(config: Path) -> str:
    """What a configuration is for: the comment that it begins with."""
    with config.open(encoding="utf-8") as lines:
        return next(lines, "").lstrip("# ").strip()


def read_config(file: Path | None, words: Sequence[str]) -> dict[str, Any]:
    """A configuration as the trainer would read it: a file's settings, changed by KEY=VALUE words. Raises
    BadConfiguration where it would refuse it."""
    command = [sys.executable, "-B", "-c", _READ, str(trainer_script().parent), str(file or ""), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BadConfiguration(done.stderr.strip().rpartition("\n")[2])
    config: dict[str, Any] = json.loads(done.stdout)
    return config


@dataclass(frozen=True)
class Failure:
    """Why a run failed."""

    text: str
    """For one line."""
    refused: bool = False
    """Whether the trainer said so itself, in its own line."""


class TrainingRun:
    def __init__(self, words: Sequence[str], launch: Launch, folder: Path) -> None:
        """Start it with the words of its command line, in an empty folder for what torchrun and the ranks write."""
        self.launch, self.folder = launch, folder
        job = Job(JobKind.SCRIPT, (str(trainer_script()), *words))
        self._running: Running = start(
            job.command(launch, folder),
            folder=folder,
            run_id=new_run_id(),
            environ=job.plain_environ(folder),
            grace=GRACE_SECONDS,
            stdout=folder / "launcher.log",
            stderr=folder / "launcher.log",
            if_orphaned=[folder],
        )

    def wait(self, seconds: float) -> Ending | None:
        """Wait for its end, but no longer than this."""
        return self._running.wait(seconds)

    def stop(self) -> None:
        """End every process of it."""
        self._running.stop()

    def streams(self) -> list[Stream]:
        """What the ranks write; rank 0 speaks for all, the others by their number."""
        return torchrun.streams(self.folder, self.launch, bool)

    def failure(self, status: int = FAILED) -> Failure:
        """Why it failed: what the first rank said, or how it ended, or what torchrun said, whose status is negative for
        a signal."""
        codes = torchrun.exit_codes((self.folder / "launcher.log").read_text(errors="replace"), self.launch)
        folders = torchrun.rank_folders(self.folder, self.launch)
        errors = [(error, rank) for rank, path in folders if (error := torchrun.recorded_failure(path))]
        killed = {rank: code for rank, code in codes.items() if -code in _OF_ITS_OWN}
        if killed and all(error.of_a_victim for error, _ in errors):
            rank, code = next(iter(killed.items()))
            return Failure(f"rank {rank} was ended by signal {-code}")
        if errors:
            error, rank = min(errors, key=lambda error: error[0].time)
            text = f"{error.type}: {error.message}".partition("\n")[0]
            return Failure(f"rank {rank} failed: {escape(text)}")
        if refused := [rank for rank, code in codes.items() if code == REFUSED]:
            return Failure(f"{ranks_phrase(refused)} refused to begin", refused=True)
        if codes:
            rank, code = next(iter(codes.items()))
            how = f"was ended by signal {-code}" if code < 0 else f"ended with exit status {code}"
            return Failure(f"rank {rank} {how}")
        if status < 0:
            return Failure(f"torchrun was ended by signal {-status}")
        return Failure(self._why_not_launched())

    def _why_not_launched(self) -> str:
        if not (lines := (self.folder / "launcher.log").read_text(errors="replace").strip().splitlines()):
            return "torchrun failed without an error message"
        if "EADDRINUSE" in lines[-1]:
            return f"port {self.launch.master_port} is in use; without --master-port a free port is chosen"
        return f"torchrun failed: {escape(lines[-1])}"
