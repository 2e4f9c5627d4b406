"""Checkpoints that are written while training goes on, through torch.distributed.checkpoint.

Imported only where the configuration asks for it, since torch.distributed.checkpoint takes long to import. It gives the
thread and the order of copying and writing; the files are the same as those of checkpoints.save, because its own format
is read by the plain unpickler, which runs whatever code a file holds.
"""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from checkpoint_files import CheckpointError
from checkpoints import Due, prepare
from components import Component
from exchange import on_rank_0
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.staging import AsyncStager
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult

# It warns of what is meant here: only rank 0 writes.
warnings.filterwarnings("ignore", message="torch.distributed is (disabled|unavailable)")


class AsynchronousSaver:
    """Saves as checkpoints.save does, but the ranks go on as soon as the state is copied."""

    def __init__(self) -> None:
        # torch.distributed.checkpoint wants a group that reaches host memory, which NCCL's does not.
        self._alone = dist.new_group([0], backend="gloo")
        self._writer: _Writer | None = None
        self._failure = ""

    def save(
        self,
        folder: Path,
        step: int,
        components: Mapping[str, Component],
        keep: int = 3,
        *,
        best: bool = False,
        texts: Mapping[str, str] | None = None,
    ) -> None:
        """Begin to write a checkpoint, after the one before it is complete.

        Raises:
            CheckpointError: replicas differ, or the one before could not be written.
        """
        self.finish()
        due = prepare(folder, step, components, keep, best=best, texts=texts)
        self._failure = due.failure
        if dist.get_rank() == 0:
            self._writer = _Writer(due)
            self._writer.begin(self._alone)

    def finish(self) -> None:
        """Wait until the last one is complete; every rank calls it, at the end too.

        Raises:
            CheckpointError: it could not be written.
        """
        on_rank_0(self._wait, self._failure)

    def _wait(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.wait()


class _Writer(StorageWriter, AsyncStager):
    """Writes one checkpoint: copies when it is asked to stage, and writes when it is asked for the data."""

    _synchronize_after_execute = False  # the copy is complete when stage returns

    def __init__(self, due: Due) -> None:
        self.due = due
        self._error: OSError | CheckpointError | None = None
        self._done: Future[object] | None = None

    def begin(self, group: Any) -> None:
        """Copy the state, and write it in a thread."""
        options: dict[str, Any] = {"storage_writer": self, "process_group": group}
        if "no_dist" in inspect.signature(async_save).parameters:  # torch before 2.8 asks the group of one
            options["no_dist"] = True
        self._done = cast("Future[object]", async_save({}, **options))

    def wait(self) -> None:
        """Until it is written; raise what went wrong."""
        if self._done is not None:
            self._done.result()
        if self._error is not None:
            raise self._error

    def stage(self, state_dict: Any) -> Any:
        """Copy what is to be written, since training changes it in place."""
        self.due = self.due.copied()
        return state_dict

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> torch.futures.Future[list[WriteResult]]:
        """Write all of it; an error is told by wait."""
        try:
            self.due.write()
        except (OSError, CheckpointError) as error:
            self._error = error
        done: torch.futures.Future[list[WriteResult]] = torch.futures.Future()
        done.set_result([])
        return done

    # What else torch.distributed.checkpoint asks of a stager and a writer; there is one rank and one folder.

    def synchronize_staging(self) -> None:
        """Nothing: stage has copied."""

    def close(self) -> None:
        """Nothing is held."""

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Nothing: a writer writes once."""

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Nothing to set up."""

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """As it is."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """As they are."""
        return plans

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Nothing: the manifest is written with the files."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Every path will do."""
        return True
