"""Why Slurm ended a job, as its accounting says: sacct is asked after a run that broke, where it is installed."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ddpdoctor.redact import escape
from ddpdoctor.text import size
from ddpdoctor.trace import SlurmEnd, Trace
from ddpdoctor.trace.recording import Recording

SACCT = "sacct.txt"
"""The file, in the job's folder, with what sacct printed."""
SECONDS = 8.0
"""For all of it. The database hears of an end some seconds later, and of what the job asked for later still."""
_PAUSE = 1.0
_LARGEST = 256 << 10
"""Bytes that are read of its answer: one of thousands of steps is cut off."""
_FIELDS = ("JobIDRaw", "State", "NNodes", "ReqMem", "MaxRSSNode", "MaxRSSTask", "Timelimit")
_GOES_ON = ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "REQUEUED")
_OF_TIME = ("TIMEOUT", "DEADLINE", "PREEMPTED")
_BATCH = "batch"
"""The step in which the script of sbatch runs."""
_OUT_OF_MEMORY = "OUT_OF_MEMORY"
_MEMORY = re.compile(r"(?P<count>[\d.]+)(?P<unit>[KMGTP]?)(?P<of_node>n?)")
_EXCEEDED = re.compile(r"exceeded (?:\w+ )?memory limit(?: \(\d+ > (?P<limit>\d+)\))?")
"""slurmstepd's words where it measures the memory itself; its accounting then speaks of a step that was cancelled."""
_KILLED = re.compile(r"error: (?P<host>[\w.-]+): task (?P<task>\d+): Out Of Memory")
"""srun's words where the kernel measures it."""
_Row = Mapping[str, str]


def ask(folder: Path, trace: Trace) -> SlurmEnd | None:
    """Ask sacct about the job whose run broke, and keep its answer in the folder; why Slurm ended it, if it did."""
    step, inside = _step(trace.recorded), _step_in(os.environ)
    if step is None or not trace.broken or step == inside:  # a step in which we are goes on
        return None
    end = time.monotonic() + SECONDS
    while (left := end - time.monotonic()) > 0 and _write_answer(folder / SACCT, step[0], left):
        rows = _rows(folder)
        in_its_job = inside is not None and inside[0] == step[0]
        if _is_final(rows.get(".".join(step))) and (in_its_job or _is_final(rows.get(step[0]))):
            break
        time.sleep(min(_PAUSE, left))
    return read_end(folder, trace.recorded, trace.log)


def read_end(folder: Path, recorded: Mapping[int, Recording], log: Sequence[str]) -> SlurmEnd | None:
    """Why Slurm ended the job in this folder; None where it did not, or sacct was not asked.

    Args:
        recorded: its ranks.
        log: the last lines of the launcher's output.
    """
    step = _step(recorded)
    rows = _rows(folder)
    if step is None or not rows:
        return None
    of_job, of_step = rows.get(step[0], {}), rows.get(".".join(step), {})
    states = [row["State"].partition(" ")[0] for row in (of_step, of_job) if row]
    exceeded = next(filter(None, map(_EXCEEDED.search, log)), None)
    if exceeded or _OUT_OF_MEMORY in states:
        limit = int(exceeded["limit"] or 0) if exceeded else _limit_of_node(of_job)
        return _out_of_memory(of_step, log, recorded, limit)
    state = next((state for state in states if state in _OF_TIME), None)
    return SlurmEnd(state, limit=escape(of_job.get("Timelimit", ""))) if state else None


def _out_of_memory(
    of_step: _Row, log: Sequence[str], recorded: Mapping[int, Recording], limit: int
) -> SlurmEnd:
    killed = next(filter(None, map(_KILLED.search, log)), None)
    task, host = (
        (killed["task"], killed["host"])
        if killed
        else (of_step.get("MaxRSSTask", ""), of_step.get("MaxRSSNode", ""))
    )
    ranks = (rank for rank, recording in recorded.items() if recording.environ.get("SLURM_PROCID") == task)
    named = f"task {task} on {host}" if task.isdigit() and host else ""
    return SlurmEnd(_OUT_OF_MEMORY, size(limit) if limit else "", escape(named), tuple(ranks))


def _step(recorded: Mapping[int, Recording]) -> tuple[str, str] | None:
    """The number of the job and of its step in which the ranks ran."""
    return next(filter(None, (_step_in(recording.environ) for recording in recorded.values())), None)


def _step_in(environ: Mapping[str, str]) -> tuple[str, str] | None:
    job, step = environ.get("SLURM_JOB_ID", ""), environ.get("SLURM_STEP_ID", _BATCH)
    return (job, step) if job.isdigit() and (step.isdigit() or step == _BATCH) else None


def _write_answer(file: Path, job: str, seconds: float) -> bool:
    """Let sacct write its answer; whether it could."""
    words = ["sacct", "--parsable2", "--noheader", f"--format={','.join(_FIELDS)}", "--jobs", job]
    try:
        with file.open("wb") as answer:
            done = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                stdout=answer,
                stderr=subprocess.DEVNULL,
                timeout=seconds,
                check=False,
            )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _rows(folder: Path) -> dict[str, _Row]:
    """What it said of the job and of each step, by their numbers; empty where it was not asked."""
    try:
        with (folder / SACCT).open("rb") as answer:
            text = answer.read(_LARGEST).decode(errors="replace")
    except OSError:
        return {}
    cells = (line.split("|") for line in text.splitlines())
    return {row[0]: dict(zip(_FIELDS, row, strict=True)) for row in cells if len(row) == len(_FIELDS)}


def _is_final(row: _Row | None) -> bool:
    """Whether the database has heard of its end, and of the memory that it had."""
    if row is None or row["State"].partition(" ")[0] in _GOES_ON:
        return False
    return "." in row["JobIDRaw"] or not row["ReqMem"].endswith("?")


def _limit_of_node(row: _Row) -> int:
    """The memory that a job has on each host, in bytes; 0 where that is not known."""
    match, nodes = _MEMORY.fullmatch(row.get("ReqMem", "")), row.get("NNodes", "")
    if match is None or not nodes.isdigit():
        return 0
    in_all = float(match["count"]) * 1024 ** " KMGTP".index(match["unit"] or " ")
    return int(in_all if match["of_node"] else in_all / max(1, int(nodes)))
