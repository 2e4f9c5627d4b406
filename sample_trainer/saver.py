"""Writes checkpoints: before training goes on, or in a thread while it does."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import checkpoints
import torch.distributed as dist
from checkpoints import Due
from exchange import on_rank_0


class Saver:
    """Saves the checkpoints of a run, one after the other; every rank has one.

    Args:
        asynchronous: whether the ranks go on as soon as the state is copied.
    """

    def __init__(self, *, asynchronous: bool) -> None:
        self._threads = ThreadPoolExecutor(max_workers=1) if asynchronous else None
        self._writing: Future[None] | None = None
        self._failure = ""

    def save(self, due: Due) -> None:
        """Write a checkpoint, or begin to, after the one before it is complete.

        Raises:
            CheckpointError: it could not be written, or the one before could not.
        """
        if self._threads is None:
            checkpoints.save(due)
            return
        self.finish()
        self._failure = due.failure
        if dist.get_rank() == 0:
            self._writing = self._threads.submit(due.copied().write)

    def finish(self) -> None:
        """Wait until the last one is complete; every rank calls it, at the end too.

        Raises:
            CheckpointError: it could not be written.
        """
        if self._threads is not None:
            on_rank_0(self._wait, self._failure)

    def _wait(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()
