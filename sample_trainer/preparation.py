"""What comes before training and after it: the run folder, the data, what is left of the run."""

from __future__ import annotations

import contextlib
import json
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from config import Config
from data import Material, load, write_text_file
from distributed import all_or_none
from exchange import on_rank_0
from metrics import RunFolder, claim, machine, new_folder, write_text


def choose_folder(config: Config) -> Path:
    """The run folder. Its name holds the time, so that one rank chooses it for all."""

    def choose() -> bytes:
        folder = Path(config.run.folder) if config.run.folder else new_folder(config.run.name)
        folder.mkdir(parents=True, exist_ok=True)
        claim(folder)
        return str(folder).encode()

    return Path(on_rank_0(choose, "the run folder cannot be created").decode())


def prepare_data(config: Config, folder: Path) -> Material:
    """Training and held-out samples, on every rank."""
    data = config.data
    if data.strategy == "memory_mapped":
        # Once, before anybody maps it; the run folder is on a disk that all ranks see, as for checkpoints.
        on_rank_0(lambda: write_text_file(data, folder), "the text cannot be written to the run folder")
    with all_or_none():
        return load(data, folder)


@contextlib.contextmanager
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
        "machine": machine(),
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
        if run:
            run.fail(error)
        raise
    on_rank_0(lambda: run.finish() if run else None, "the run folder cannot be written")


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
