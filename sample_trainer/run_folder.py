"""The run folder: what a run is, and what it measured, for people and programs to read while it runs and after.

    runs/20260103-120000-trainer/
        run.json          what was started, how, and how it ended
        metrics.jsonl     one object on each line: a logged step, an evaluation, a checkpoint
        rank<R>.json      what each rank has come to
        checkpoints/      see checkpoints.py

Rank 0 alone writes the first two: what it writes is the same on every rank, since it was averaged over them.
"""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from checkpoint_files import write_whole
from config import Config
from distributed import all_or_none, on_rank_0

Kind = Literal["step", "evaluation", "checkpoint"]


def choose_folder(config: Config) -> Path:
    """The run folder. Its name holds the time, so that one rank chooses it for all."""

    def choose() -> bytes:
        folder = Path(config.run.folder) if config.run.folder else new_folder(config.run.name)
        folder.mkdir(parents=True, exist_ok=True)
        return str(folder).encode()

    return Path(on_rank_0(choose, "the run folder cannot be created").decode())


def new_folder(name: str, root: Path = Path("runs")) -> Path:
    """A folder that no other run has: runs/<time>-<name>, with a number where a second has two of a name."""
    begun = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)  # no way out of the root
    for number in range(1000):
        folder = root / (f"{begun}-{safe}" + (f"-{number + 1}" if number else ""))
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise FileExistsError(root)


class RunFolder:
    """run.json and metrics.jsonl of one run, in a folder that exists, as long as it lasts: a context manager. Every
    rank has one and calls the same methods: rank 0 writes, and where it cannot, all ranks raise a TrainerError.
    ``steps`` are planned in all; what an earlier part measured after step ``begun`` is forgotten."""

    def __init__(self, config: Config, folder: Path, device: torch.device, steps: int, begun: int) -> None:
        self._file, self._run, self._begun = folder / "metrics.jsonl", folder / "run.json", begun
        self.ending = "finished"
        """What run.json will say where nothing goes wrong: "finished", or "stopped early"."""
        self._facts = {
            "name": config.run.name,
            "world_size": dist.get_world_size(),
            "device": device.type,
            "backend": dist.get_backend(),
            "torch": torch.__version__,
            "steps": steps,
            "config": config.as_dict(),
            "started": _now(),
            "command": sys.argv,
        }

    def __enter__(self) -> RunFolder:
        on_rank_0(self._begin, "the run folder cannot be written")
        return self

    def _begin(self) -> None:
        self._tell("running", None)
        if self._begun and self._file.exists():
            lines = self._file.read_text(errors="replace").splitlines()
            kept = (f"{line}\n" for line in lines if 0 <= _step_of(line) <= self._begun)
            write_whole(self._file, "".join(kept).encode())

    def add(self, kind: Kind, step: int, epoch: int, values: Mapping[str, Any]) -> None:
        """Append one line, whole: somebody may be reading."""

        def append() -> None:
            with self._file.open("a") as file:
                file.write(json.dumps({"kind": kind, "step": step, "epoch": epoch, **values}) + "\n")

        on_rank_0(append, f"{self._file} cannot be written")

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Say how it ended; a run that is killed says nothing."""
        if error is None:
            on_rank_0(lambda: self._tell(self.ending, _now()), "the run folder cannot be written")
        elif dist.get_rank() == 0:
            failed = f"failed: {type(error).__name__}: {error}".partition("\n")[0]
            with suppress(OSError):  # if the disk still takes it
                self._tell("stopped" if isinstance(error, KeyboardInterrupt) else failed, _now())

    def _tell(self, status: str, finished: str | None) -> None:
        facts = {**self._facts, "finished": finished, "status": status}
        write_whole(self._run, (json.dumps(facts, indent=2) + "\n").encode())


def leave_summary(folder: Path, values: Mapping[str, Any]) -> None:
    """Each rank's own rank<R>.json: whoever compares ranks, compares these."""
    with all_or_none():
        write_whole(folder / f"rank{dist.get_rank()}.json", json.dumps(values).encode())


def _step_of(line: str) -> int:
    """The step that a line of metrics.jsonl is of; -1 for half a line, as a full disk leaves it."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, LookupError, TypeError):
        return -1


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")
