"""The run folder: what a run is, and what it measured, for people and programs to read while it runs and after.

    runs/20260103-120000-trainer/
        run.json          what was started, how, and how it ended
        metrics.jsonl     one object on each line: a logged step, an evaluation, a checkpoint
        checkpoints/      see checkpoints.py

Rank 0 alone writes: what it writes is the same on every rank, since it was averaged over them.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from config import TrainerError

Kind = Literal["step", "evaluation", "checkpoint"]


def new_folder(name: str, root: Path = Path("runs")) -> Path:
    """A folder that no other run has: runs/<time>-<name>, with a number where a second has two of a name."""
    begun = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    for number in range(1000):
        folder = root / (f"{begun}-{name}" + (f"-{number + 1}" if number else ""))
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise FileExistsError(root)


class RunFolder:
    """Writes run.json and metrics.jsonl of one run."""

    def __init__(self, folder: Path, facts: Mapping[str, Any], *, tensorboard: bool = False) -> None:
        """Begin a run.

        Args:
            folder: exists already, maybe with an earlier part of the same run.
            facts: name, world_size, device, backend, torch, steps (planned in all), config: see ``trainer.py``.
        """
        self._file = folder / "metrics.jsonl"
        self._run = folder / "run.json"
        self._facts = {
            **facts,
            "started": _now(),
            "command": sys.argv,
            "finished": None,
            "status": "running",
        }
        self.ending = "finished"
        """What run.json will say where nothing goes wrong: "finished", or "stopped early"."""
        self._write_run()
        self._board = _tensorboard(folder) if tensorboard else None

    def rewind(self, step: int) -> None:
        """Forget what came after this step: a run that goes on from a checkpoint measures it again."""
        if not self._file.exists():
            return
        kept = [line for line in self._file.read_text().splitlines() if json.loads(line)["step"] <= step]
        write_text(self._file, "".join(f"{line}\n" for line in kept))

    def add(self, kind: Kind, step: int, epoch: int, values: Mapping[str, Any]) -> None:
        """Append one line, whole: somebody may be reading."""
        line = json.dumps({"kind": kind, "step": step, "epoch": epoch, **values})
        try:
            with self._file.open("a") as file:
                file.write(line + "\n")
        except OSError as error:
            raise TrainerError(f"{self._file} cannot be written: {error.strerror}") from None
        if self._board:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self._board.add_scalar(f"{kind}/{name}", value, step)

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is None:
            self.finish(self.ending)
        else:
            told = str(error).partition("\n")[0]
            self.finish("stopped" if kind is KeyboardInterrupt else f"failed: {kind.__name__}: {told}")

    def finish(self, status: str) -> None:
        """Say how it ended: "finished", "stopped early", "stopped" (Ctrl-C), "failed: ..."; killed, it says nothing."""
        self._facts |= {"finished": _now(), "status": status}
        self._write_run()
        if self._board:
            self._board.close()

    def _write_run(self) -> None:
        write_text(self._run, json.dumps(self._facts, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file so that whoever looks, and whenever, finds all of it or what was there before."""
    part = path.with_name(path.name + ".part")
    with part.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")


def _tensorboard(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise TrainerError(
            "run.tensorboard=true needs the package tensorboard: pip install tensorboard"
        ) from None
    return SummaryWriter(folder)
