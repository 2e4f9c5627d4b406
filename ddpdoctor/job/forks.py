"""Ranks that are forked from one process that has imported torch."""

from __future__ import annotations

import time
from collections.abc import Sequence
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
