"""Runs a benchmark under the guard and reads what its ranks wrote: the command's side. Never imports torch."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from ddpdoctor.bench.results import Results, put_together
from ddpdoctor.bench.setting import Setting
from ddpdoctor.files import read_json, write_json
from ddpdoctor.job.guarded import ENGINE_LOG, new_run_id, start_engine
from ddpdoctor.redact import escape
from ddpdoctor.text import plural

SETTING, PROGRESS, DONE = "setting.json", "progress.json", "done.json"
_LOOK_SECONDS = 0.1
_BUSY_SECONDS = 0.3
"""For which the machine is looked at before anything is started."""


class BenchFailed(Exception):
    """The ranks did not come to an end; the message says which one did not, and where."""


def run(setting: Setting, cpus: float, seconds: float, stage: Callable[[str], None]) -> Results:
    """Measure; leave neither a process nor a file.

    Args:
        seconds: the time limit.
        stage: is told what is measured now.

    Raises:
        BenchFailed: a rank failed, or the time limit was reached.
    """
    folder = Path(tempfile.mkdtemp(prefix="ddpdoctor-bench-"))
    try:
        busy = psutil.cpu_percent(_BUSY_SECONDS) / 100 * (psutil.cpu_count() or 1)
        write_json(folder / SETTING, asdict(setting))
        _measure(folder, seconds, stage)
        torch = read_json(folder / DONE)["torch"]
        measured = {ranks: [_read(folder, ranks, rank) for rank in range(ranks)] for ranks in setting.ranks}
        return put_together(setting, measured, cpus, torch, busy)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure(folder: Path, seconds: float, stage: Callable[[str], None]) -> None:
    deadline = time.monotonic() + seconds
    running = start_engine("ddpdoctor.bench.engine", folder, new_run_id(), os.environ, [folder])
    doing = "importing torch"
    with running:
        while (ending := running.wait(_LOOK_SECONDS)) is None:
            doing = read_json(folder / PROGRESS) or doing
            stage(doing)
            if time.monotonic() > deadline:
                raise BenchFailed(f"the time limit of {seconds:g} s was reached: {doing}")
    if ending.status != 0:
        raise BenchFailed(_why(folder))


def _why(folder: Path) -> str:
    """What the rank said that failed first."""
    failures = sorted(folder.glob("*.failed.json"), key=lambda path: path.stat().st_mtime_ns)
    if not failures:
        log = (folder / ENGINE_LOG).read_text(errors="replace").strip().splitlines()
        return escape(log[-1]) if log else "the process that starts the ranks ended without an error message"
    failure = read_json(failures[0])
    ranks, _, rank = failures[0].name.partition(".")[0].partition("-ranks-")
    return f"rank {rank} of {plural(int(ranks), 'rank')} failed, {escape(failure['doing'])}: {escape(failure['error'])}"


def _read(folder: Path, ranks: int, rank: int) -> Any:
    return read_json(folder / f"{ranks}-ranks-{rank}.json")
