"""Ranks that are forked from one process that has imported torch."""

import contextlib
import gc
import importlib
import multiprocessing
import os
import select
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

_FORK_SECONDS = 30.0
_POLL = 0.002


def wait_for_forks(files: Sequence[Path]) -> None:
    """Wait until every rank of this host has been forked: each has one of the files, from its first moment.

    The parent holds the store. A thread of it that answers the first ranks may hold a lock, of glibc's resolver for
    instance, while a later one is forked, which then waits for that lock for ever.
    """
    end = time.monotonic() + _FORK_SECONDS
    while not all(file.exists() for file in files) and time.monotonic() < end:
        time.sleep(_POLL)


class _PipeEvent:
    """What torchrun's engine needs of an event that it shares with forks, without a semaphore."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()

    def set(self) -> None:
        os.write(self._writer, b".")

    def wait(self, timeout: float | None = None) -> bool:
        return bool(select.select([self._reader], [], [], timeout)[0])  # nobody takes the byte away


def replace_semaphores() -> None:
    """Let torchrun's engine fork where /dev/shm is absent, full or read-only: there are no semaphores then. Each of its
    queues has one writer and one reader, which need no lock."""
    context: Any = multiprocessing.get_context("fork")
    try:
        context.Lock()
    except OSError:
        context.Lock, context.Event = contextlib.nullcontext, _PipeEvent


def preload(modules: Iterable[str]) -> None:
    """Import modules whose objects stay, in a process that forks ranks. The garbage collector would take a quarter of
    that time in vain, and in every rank copy the memory that all share."""
    replace_semaphores()
    gc.disable()
    for module in modules:
        importlib.import_module(module)
    gc.freeze()
    gc.enable()
