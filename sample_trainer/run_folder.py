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
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from config import Config, TrainerError
from distributed import all_or_none, on_rank_0

Kind = Literal["step", "evaluation", "checkpoint"]


def choose_folder(config: Config) -> Path:
    """The run folder. Its name holds the time, so that one rank chooses it for all."""

    def choose() -> bytes:
        folder = Path(config.run.folder) if config.run.folder else new_folder(config.run.name)
        folder.mkdir(parents=True, exist_ok=True)
        claim(folder)
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


def claim(folder: Path) -> None:
    """Have a folder for this process alone until its end: two runs in one would write into each other's files.

    The system lets go of it when the process ends, however it ends. So whoever reads run.json can tell a run that
    is running from one that was killed.

    Raises:
        TrainerError: another process has it.
    """
    if sys.platform == "win32":
        return
    import fcntl

    opened = os.open(folder, os.O_RDONLY)
    # Workers inherit it, and may outlive this process by some seconds.
    os.register_at_fork(after_in_child=partial(os.close, opened))
    for _ in range(20):
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.05)  # it may be somebody who has a look whether it is free
        except OSError:
            return  # a file system that has no locks
        else:
            return
    raise TrainerError(f"another run is training in {folder}; wait for its end, or choose another run.folder")


class RunFolder:
    """Writes run.json and metrics.jsonl of one run."""

    def __init__(self, folder: Path, facts: Mapping[str, Any], *, tensorboard: bool = False) -> None:
        """Begin a run.

        Args:
            folder: exists already, maybe with an earlier part of the same run.
            facts: what run.json says besides how it goes.
        """
        self._file = folder / "metrics.jsonl"
        self._run = folder / "run.json"
        self._facts = {**facts, "started": _now(), "command": sys.argv, "finished": None, "status": "running"}
        self.failure: TrainerError | None = None
        """Why nothing has been written since. Kept until all ranks can be told: alone, rank 0 would leave them."""
        self.ending = "finished"
        """What run.json will say where nothing goes wrong: "finished", or "stopped early"."""
        self._write_run()
        self._board = _tensorboard(folder) if tensorboard else None

    def rewind(self, step: int) -> None:
        """Forget what came after this step: a run that goes on from a checkpoint measures it again."""
        with self._failures_kept(), suppress(FileNotFoundError):
            lines = self._file.read_text(errors="replace").splitlines()
            write_text(self._file, "".join(f"{line}\n" for line in lines if 0 <= _step_of(line) <= step))

    def add(self, kind: Kind, step: int, epoch: int, values: Mapping[str, Any]) -> None:
        """Append one line, whole: somebody may be reading."""
        if self.failure:
            return
        line = json.dumps({"kind": kind, "step": step, "epoch": epoch, **values})
        with self._failures_kept(), self._file.open("a") as file:
            file.write(line + "\n")
        if self._board:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self._board.add_scalar(f"{kind}/{name}", value, step)

    @contextmanager
    def _failures_kept(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.failure = TrainerError(f"{self._file} cannot be written: {error.strerror}")

    def end(self, error: BaseException | None = None) -> None:
        """Say how it ended: as it should, "stopped" (Ctrl-C), "failed: ..."; killed, it says nothing.

        Raises:
            TrainerError: something could not be written, of a run without an error.
            OSError: this could not.
        """
        if error is None and self.failure:
            raise self.failure
        failed = f"failed: {type(error).__name__}: {error}".partition("\n")[0] if error else self.ending
        status = "stopped" if isinstance(error, KeyboardInterrupt) else failed
        self._facts |= {"finished": _now(), "status": status}
        self._write_run()
        if self._board:
            self._board.close()

    def _write_run(self) -> None:
        write_text(self._run, json.dumps(self._facts, indent=2) + "\n")


@contextmanager
def open_run(
    config: Config, folder: Path, device: torch.device, steps: int, begun: int = 0
) -> Iterator[RunFolder | None]:
    """The run folder's files while the run lasts; on rank 0. What cannot be written ends all ranks.

    Args:
        steps: planned in all.
        begun: the step at which it begins; what an earlier part of it measured after that is forgotten.
    """
    facts = {
        "name": config.run.name,
        "world_size": dist.get_world_size(),
        "device": device.type,
        "backend": dist.get_backend(),
        "torch": torch.__version__,
        "machine": _machine(),
        "steps": steps,
        "config": config.as_dict(),
    }
    opened: list[RunFolder] = []
    # Where rank 0 cannot write, the others have to hear of it.
    on_rank_0(
        lambda: opened.append(RunFolder(folder, facts, tensorboard=config.run.tensorboard)),
        "the run folder cannot be written",
    )
    run = opened[0] if opened else None
    if run and begun:
        run.rewind(begun)
    try:
        yield run
    except BaseException as error:
        with suppress(OSError):  # if the disk still takes it
            if run:
                run.end(error)
        raise
    on_rank_0(lambda: run.end() if run else None, "the run folder cannot be written")


def leave_summary(folder: Path, device: torch.device, values: Mapping[str, Any]) -> None:
    """Each rank's own rank<R>.json: whoever compares ranks, compares these."""
    summary = {
        "rank": dist.get_rank(),
        "world_size": dist.get_world_size(),
        "backend": dist.get_backend(),
        "device": str(device),
        "torch": torch.__version__,
        "python": platform.python_version(),
        **values,
    }
    with all_or_none():
        write_text(folder / f"rank{dist.get_rank()}.json", json.dumps(summary))


def write_text(path: Path, text: str) -> None:
    """Write a file so that whoever looks, and whenever, finds all of it or what was there before."""
    part = path.with_name(path.name + ".part")
    with part.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _step_of(line: str) -> int:
    """The step that a line of metrics.jsonl is of; -1 for half a line, as a full disk leaves it."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, LookupError, TypeError):
        return -1


def _machine() -> str | None:
    """What tells this machine, since it was started, from all others; None where the system does not say."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return None


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
