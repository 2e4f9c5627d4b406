"""Runs a benchmark under the guard and reads what its ranks wrote: the command's side. Never imports torch."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TypeAlias

import psutil

from ddpdoctor.bench.results import Results, put_together
from ddpdoctor.bench.setting import MEASURED, SETTING, Setting
from ddpdoctor.files import GrowingFile, read_json, write_json
from ddpdoctor.group import rank_files
from ddpdoctor.group.group_record import RankRecord
from ddpdoctor.group.rank_state import RankState, last_words, rank_records
from ddpdoctor.job.guarded import new_run_id, start_engine
from ddpdoctor.redact import escape
from ddpdoctor.text import plural

_LOOK_SECONDS = 0.1
_BUSY_SECONDS = 0.3
"""For which the machine is looked at before anything is started."""
_Sizes: TypeAlias = dict[int, list[RankState]]
"""The ranks, by how many they are."""


class BenchFailed(Exception):
    """The ranks did not come to an end; the message says which one did not, and where."""


def run(setting: Setting, cpus: float, seconds: float, stage: Callable[[str], None]) -> Results:
    """Measure; leave neither a process nor a file.

    Args:
        seconds: the time limit.
        stage: is called with what is measured now.

    Raises:
        BenchFailed: a rank failed, or the time limit was reached.
    """
    folder = Path(tempfile.mkdtemp(prefix="ddpdoctor-bench-"))
    try:
        busy = psutil.cpu_percent(_BUSY_SECONDS) / 100 * (psutil.cpu_count() or 1)
        write_json(folder / SETTING, asdict(setting))
        sizes = {ranks: _states(folder / str(ranks), ranks) for ranks in setting.ranks}
        _measure(folder, sizes, seconds, stage)
        torch = read_json(folder / rank_files.READY)["torch"]
        measured = {size: [rank.measured[MEASURED].value for rank in ranks] for size, ranks in sizes.items()}
        return put_together(setting, measured, cpus, torch, busy)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _states(folder: Path, ranks: int) -> list[RankState]:
    files = (GrowingFile(rank_files.rank_file(folder, rank)) for rank in range(ranks))
    return [RankState(rank, events=file, limit=math.inf) for rank, file in enumerate(files)]


def _measure(folder: Path, sizes: _Sizes, seconds: float, stage: Callable[[str], None]) -> None:
    deadline = time.monotonic() + seconds
    running = start_engine("ddpdoctor.bench.engine", folder, new_run_id(), os.environ, [folder])
    with running:
        while (ending := running.wait(_LOOK_SECONDS)) is None:
            doing = _doing(sizes)
            stage(doing)
            if time.monotonic() > deadline:
                raise BenchFailed(f"the time limit of {seconds:g} s was reached: {doing}")
    _doing(sizes)
    if ending.status != 0:
        raise BenchFailed(_why(folder, sizes))


def _doing(sizes: _Sizes) -> str:
    """What rank 0 of the last number of ranks does, by what all have written so far."""
    doing = "importing torch"
    for size, ranks in sizes.items():
        for rank in ranks:
            rank.read_events()
        if ranks[0].step:
            doing = f"{plural(size, 'rank')}: {ranks[0].step}"
    return doing


def _why(folder: Path, sizes: _Sizes) -> str:
    """What the rank said that failed first."""
    for size, ranks in sizes.items():
        records = rank_records(ranks, folder / str(size))
        broken = [rank for rank in records if rank.failure or (rank.exit_code or 0) < 0]
        if broken:
            first = min(broken, key=lambda rank: rank.order_of_blame)
            return f"rank {first.rank} of {plural(size, 'rank')} failed, {first.step or 'starting'}: {_reason(first)}"
    return escape(last_words(folder)) or "the process that starts the ranks ended without an error message"


def _reason(rank: RankRecord) -> str:
    if rank.failure is None:
        return f"signal {-(rank.exit_code or 0)} ended it"
    return escape(f"{rank.failure.type}: {rank.failure.message}".partition("\n")[0])
