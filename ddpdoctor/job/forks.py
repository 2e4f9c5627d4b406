"""Ranks that are forked from one process that has imported torch."""

from __future__ import annotations

import gc
import importlib
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

_FORK_SECONDS = 30.0
_POLL = 0.002


def wait_for_forks(files: Sequence[Path]) -> None:
    """Wait until every rank of this host has been forked.

    The parent holds the store. A thread of it that answers the first ranks may hold a lock, of glibc's resolver for
    instance, while a later one is forked, which then waits for that lock for ever.

    Args:
        files: one of each rank, which is there from the rank's first moment.
    """
    end = time.monotonic() + _FORK_SECONDS
    while not all(file.exists() for file in files) and time.monotonic() < end:
        time.sleep(_POLL)


def preload(modules: Iterable[str]) -> None:
    """Import modules whose objects stay, in a process that forks ranks.

    The garbage collector would take a quarter of that time in vain, and in every rank copy the memory that all share.
    """
    gc.disable()
    for module in modules:
        importlib.import_module(module)
    gc.freeze()
    gc.enable()
