"""Reads all dumps of a folder on all CPUs, each in a process whose memory is bounded."""

import gc
import math
import os
import resource
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from ddpdoctor.blame.hang_snapshot import Dump
from ddpdoctor.files import written_at
from ddpdoctor.hang.flight.reading import rank_of, read
from ddpdoctor.hang.flight.unpickle import Refused
from ddpdoctor.redact import quote
from ddpdoctor.text import plural, ranks_phrase

MEMORY = 4 << 30
"""Bytes of address space for a process that reads dumps, above what it has got from its parent: torch's libraries for
GPUs alone may take more than that."""
PLACES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCHCOMM_FR_DUMP_TEMP_FILE")
"""The variables that say where dumps go, each followed by the rank; the second is the older name of the first."""
SECONDS = 30
"""Of CPU time for one dump; the largest that is read takes 10."""
_PATIENCE = 3
"""Files that may take longer, before no more are read."""
_MOST_WORKERS = 8
_FILES_AT_ONCE = 8
_MOST_FILES = 100_000


@dataclass(frozen=True)
class Dumps:
    """What a folder holds."""

    ranks: dict[int, Dump] = field(default_factory=dict)
    refused: dict[Path, str] = field(default_factory=dict)
    """Why a file was left out."""

    @property
    def left_out(self) -> tuple[str, ...]:
        """A sentence for each reason why files were left out."""
        by_reason: dict[str, list[str]] = {}
        for file, reason in self.refused.items():
            by_reason.setdefault(reason, []).append(file.name)
        return tuple(
            f"{plural(len(names), 'file')} left out, such as {quote(names[0])}: {reason}"
            for reason, names in by_reason.items()
        )


def read_folder(place: Path) -> Dumps:
    """Read every dump in a folder and in the folders in it, as one for each host; or those whose path begins so. Raises
    Refused where there is no dump that can be read."""
    ranks = {file: rank for file in files_of(place) if (rank := rank_of(file)) is not None}
    if not ranks:
        raise Refused("no file name contains a rank, as nccl_trace_rank_0 does")
    dumps = read_files(ranks)
    if not dumps.ranks:
        file, reason = next(iter(dumps.refused.items()))
        raise Refused(f"no dump can be read; {quote(file.name)}: {reason}")
    return dumps


def files_of(place: Path) -> list[Path]:
    """The files that a folder holds, or a path without the rank at its end stands for, as the variables have it."""
    if place.is_file():
        return [place]
    if place.is_dir():
        files = [*place.glob("*"), *place.glob("*/*")]
    else:
        files = [file for file in place.parent.glob("*") if file.name.startswith(place.name)]
    return sorted(file for file in files[:_MOST_FILES] if file.is_file())


def place_in(environ: Mapping[str, str]) -> Path | None:
    """Where a job's environment sends its dumps; None where it does not say."""
    return next((Path(environ[name]) for name in PLACES if environ.get(name)), None)


def read_files(files: Mapping[Path, int]) -> Dumps:
    """Read these dumps, each of the rank that stands beside it; of several of one rank the last one written."""
    dumps = Dumps()
    for file, result in _read_all(files.items()) if files else ():
        if not isinstance(result, Dump):
            dumps.refused[file] = result
            continue
        other = dumps.ranks.get(result.rank, result)
        newer = max(result, other, key=lambda dump: written_at(dump.file))
        dumps.ranks[result.rank] = newer
        if other is not result:
            older = other if newer is result else result
            dumps.refused[older.file] = f"there is a newer one of {ranks_phrase([result.rank])}"
    return dumps


def _read_all(files: Iterable[tuple[Path, int]]) -> Iterator[tuple[Path, Dump | str]]:
    """Each file and its dump, or why there is none; one that ends its reader takes no other with it."""
    rest = dict(files)
    try:
        for file, result in _read_some(list(rest.items())):
            del rest[file]
            yield file, result
    except BrokenProcessPool:
        yield from _read_one_by_one(rest)


def _read_one_by_one(files: Mapping[Path, int]) -> Iterator[tuple[Path, Dump | str]]:
    broken = 0
    for job in files.items():
        result: Dump | str = "not read, since files before it took too long"
        if broken < _PATIENCE:
            try:
                ((_, result),) = _read_some([job])
            except BrokenProcessPool:
                broken, result = broken + 1, f"it takes more than {SECONDS} s to read"
        yield job[0], result


def _read_some(jobs: list[tuple[Path, int]]) -> Iterator[tuple[Path, Dump | str]]:
    workers = min(os.cpu_count() or 1, len(jobs), _MOST_WORKERS)
    at_once = max(1, min(_FILES_AT_ONCE, len(jobs) // workers))
    with ProcessPoolExecutor(workers, mp_context=get_context("fork"), initializer=_prepare) as pool:
        yield from pool.map(_try, jobs, chunksize=at_once)


def _prepare() -> None:
    """Bound this process's memory; dumps have no cycles, and looking for some takes half the time of reading."""
    gc.disable()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    _limit(resource.RLIMIT_AS, pages * resource.getpagesize() + MEMORY)
    _limit(resource.RLIMIT_CORE, 0)


def _limit(what: int, most: int) -> None:
    _, hard = resource.getrlimit(what)
    resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _try(job: tuple[Path, int]) -> tuple[Path, Dump | str]:
    file, rank = job
    # Tuples in tuples as keys keep the unpickler busy for years; nothing but a signal ends that.
    _limit(resource.RLIMIT_CPU, math.ceil(time.process_time()) + SECONDS)
    try:
        return file, read(file, rank)
    except Refused as why:
        return file, str(why)
    except MemoryError:
        return file, "it requires more memory than a dump needs"
    except OSError as failed:
        return file, str(failed.strerror)
