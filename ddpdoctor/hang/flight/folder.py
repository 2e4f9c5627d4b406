"""Reads all dumps of a folder on all CPUs, each in a process whose memory is bounded."""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from ddpdoctor.hang.flight.dump import Dump, rank_of, read
from ddpdoctor.hang.flight.unpickle import Refused

MEMORY = 8 << 30
"""Bytes of address space for a process that reads dumps."""
_FILES_AT_ONCE = 16


@dataclass(frozen=True)
class Dumps:
    """What a folder holds."""

    ranks: dict[int, Dump] = field(default_factory=dict)
    refused: dict[Path, str] = field(default_factory=dict)
    """Why a file was left out."""


def read_folder(folder: Path) -> Dumps:
    """Read every file whose name ends with a rank.

    Raises:
        Refused: the folder holds no dump that can be read.
    """
    files = {file: rank for file in sorted(folder.iterdir()) if (rank := rank_of(file)) is not None}
    if not files:
        raise Refused("no file in it ends with a rank, as nccl_trace_rank_0 does")
    dumps = Dumps()
    for file, said in _read_all(files.items()):
        if isinstance(said, Dump):
            dumps.ranks[said.rank] = said
        else:
            dumps.refused[file] = said
    if not dumps.ranks:
        file, reason = next(iter(dumps.refused.items()))
        raise Refused(f"no dump in it can be read; {file.name}: {reason}")
    return dumps


def _read_all(files: Iterable[tuple[Path, int]]) -> Iterator[tuple[Path, Dump | str]]:
    listed = list(files)
    workers = min(os.cpu_count() or 1, len(listed))
    context = get_context("fork")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_prepare) as pool:
        yield from pool.map(_try, listed, chunksize=_FILES_AT_ONCE)


def _prepare() -> None:
    """Bound this process's memory; dumps have no cycles, and looking for some takes half the time of reading."""
    gc.disable()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = MEMORY if hard == resource.RLIM_INFINITY else min(MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def _try(job: tuple[Path, int]) -> tuple[Path, Dump | str]:
    file, rank = job
    try:
        return file, read(file, rank)
    except Refused as why:
        return file, str(why)
    except OSError as failed:
        return file, str(failed.strerror)
