"""Runs a script's ranks as forks of one process that has imported torch, and judges what the recorder saw of them.

A rank costs a fork and not an import of torch, so a test of a script takes a second or two. What a rank sees is
what it would see under torchrun: its variables, its own session, sys.argv and sys.path[0], files as its output.
The folder is laid out as that of a job, so it is read back as every job is.
"""

import atexit
import json
import os
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from ddpdoctor import registry
from ddpdoctor.blame.liveness import JobState
from ddpdoctor.job.command import RECORD, Job, JobKind, recorder_options
from ddpdoctor.job.job_folder import Stopped, read_trace, write_ending, write_job
from ddpdoctor.job.run import JobRun
from ddpdoctor.job.supervisor import Supervisor
from ddpdoctor.judge import judge, judge_further, merge
from ddpdoctor.launch import Imagined, Launch
from ddpdoctor.model import CheckResult, Finding, Level, Outcome, Source
from ddpdoctor.recorder.options import RecorderOptions
from ddpdoctor.trace import Trace
from tests.support.watcher import sitecustomize as watcher

ROOT = Path(__file__).parents[2]
ALONE = dict.fromkeys(
    [
        *("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE"),
        *("MASTER_ADDR", "MASTER_PORT"),
        *("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"),
    ]
)
"""The environment of a process that no launcher started."""
_LOOK_SECONDS = 0.2
_JUDGING = threading.Lock()
"""Judging reads a program once for all its rank counts, in one thread at a time."""

_STOPPED = (-15, -9)
"""What ends ranks that had to be stopped."""
SECONDS = 240.0
"""For all ranks of a script; generous, since two cores may be running much else."""


@dataclass(frozen=True)
class Ran:
    """A script that was run."""

    folder: Path
    statuses: tuple[int, ...]
    """Of the ranks, negative for a signal."""
    outputs: tuple[str, ...]
    """What each rank wrote on stdout."""
    errors: tuple[str, ...]
    finals: tuple[Mapping[str, Any], ...]
    """Digests of each rank's weights, optimizer state and random states at its end."""
    trace: Trace = field(default_factory=lambda: Trace(()))
    results: tuple[CheckResult, ...] = ()
    findings: tuple[Finding, ...] = ()

    def told(self, *wanted: str) -> list[Finding]:
        """The findings above information, and those of the checks that are wanted.

        What judges time is left out unless it is wanted, since it depends on what else the machine does meanwhile:
        ``python -m tests.stragglers`` measures it.
        """
        timed = {check.code for check in registry.all_checks() if check.timed}
        return [
            one
            for one in self.findings
            if one.code in wanted or (one.level is not Level.INFO and one.code not in timed)
        ]


def run_forked(
    script: Path,
    folder: Path,
    *arguments: str,
    nproc: int = 2,
    record: bool = True,
    seconds: float = SECONDS,
    hang_after: float | None = None,
    slot: int = 0,
    environ: Mapping[str, str | None] | None = None,
    imagined: Imagined | None = None,
    **recorder: Any,
) -> Ran:
    """Run a script on forked ranks and judge it.

    Args:
        folder: empty, or absent; everything that is written goes there, and it is the working directory.
        record: whether the recorder is there; without it nothing is judged.
        hang_after: seconds without progress after which it is looked at, stopped and judged as one that hangs.
        environ: variables of the ranks, beside those that torchrun sets or in their place; None takes one away.
        imagined: the job that the script is to see; only its real ranks run, whatever ``nproc`` is.
        slot: which process forks the ranks; each runs one script at a time.
        recorder: fields of RecorderOptions: batches, full, rehearse.
    """
    _skip_with_older_torch(script)
    run, work = folder / "run", folder / "work"
    work.mkdir(parents=True)
    (run / RECORD).mkdir(parents=True)
    nproc = len(imagined.ranks) if imagined else nproc
    launch = Launch(nproc=nproc, imagined=imagined)
    job = Job(JobKind.SCRIPT, (str(script.resolve()), *arguments), RecorderOptions(**recorder))
    write_job(run, job, launch)
    asked = recorder_options(job.recorder, launch, run / RECORD)
    variables = {**(asked.to_environment() if record else {}), **(environ or {})}
    began = time.monotonic()
    server = _server(slot)
    supervisor = Supervisor(job, launch, run / RECORD, server.pid, hang_after) if hang_after else None
    reply = server.ask(
        {
            "words": job.words,
            "run": str(run),
            "work": str(work),
            "nproc": nproc,
            "environ": variables,
            "seconds": seconds,
        },
        (lambda: _stops(supervisor, run)) if supervisor else None,
    )
    statuses = tuple(reply["statuses"])
    stopped = _STOPPED if reply["timed_out"] else ()
    ended = {rank: status for rank, status in enumerate(statuses) if status not in stopped}
    (run / "stderr.log").write_text("".join(_summary(rank, status) for rank, status in ended.items()))
    write_ending(run, _stopped(statuses, time.monotonic() - began, reply["timed_out"], reply["stopped_at"]))
    own = [run / "torchrun" / "none" / "attempt_0" / str(rank) for rank in range(nproc)]
    ran = Ran(
        work,
        statuses,
        tuple((one / "stdout.log").read_text(errors="replace") for one in own),
        tuple((one / "stderr.log").read_text(errors="replace") for one in own),
        tuple(
            json.loads((one / "final.json").read_text()) if (one / "final.json").exists() else {}
            for one in own
        ),
    )
    return _judged(ran, run) if record else ran


def _stops(supervisor: Supervisor, run: Path) -> bool:
    """Whether the job has stopped; then what is seen of it is kept."""
    judgement = supervisor.look()
    if judgement.state is not JobState.HUNG:
        return False
    supervisor.capture(run, judgement.still)
    return True


def run_alone(script: Path, folder: Path, *arguments: str, seconds: float = SECONDS, **recorder: Any) -> Ran:
    """Run a script that starts its ranks by itself, and judge it."""
    run, work = folder / "run", folder / "work"
    work.mkdir(parents=True)
    run.mkdir()
    line = ("env", f"--chdir={work}", sys.executable, str(script.resolve()), *arguments)
    job = Job(JobKind.LINE, line, RecorderOptions(**recorder))
    trace = JobRun(job, Launch(), run).finish(time.monotonic() + seconds)
    out, err = (run / name for name in ("stdout.log", "stderr.log"))
    ran = Ran(
        work, (trace.status,), (out.read_text(errors="replace"),), (err.read_text(errors="replace"),), ()
    )
    return _judged(ran, run)


def starts_ranks_itself(script: Path) -> bool:
    """Whether a script is run by python and not by torchrun."""
    text = script.read_text()
    return (
        "mp.spawn(" in text
        or "Process(target=" in text
        or "multiprocessing.spawn(" in text
        or "start_processes(" in text
    )


def needs_gpus(script: Path) -> bool:
    """Whether a script is written for GPUs, and is rehearsed here."""
    return '"nccl"' in script.read_text()


def _skip_with_older_torch(script: Path) -> None:
    """Skip the test of a script that says ``# needs torch 2.6`` where torch is older."""
    needed = re.search(r"^# needs torch (\d+)\.(\d+)", script.read_text(), re.MULTILINE)
    installed = metadata.version("torch").split(".")[:2]
    if needed and tuple(map(int, installed)) < tuple(map(int, needed.groups())):
        pytest.skip(needed[0][2:])


def _judged(ran: Ran, run: Path) -> Ran:
    return judged_again(ran, read_trace(run))


def judged_again(ran: Ran, trace: Trace) -> Ran:
    """A script that was run, judged by this trace."""
    broke: list[str] = []
    checks = registry.select(Source.RUN)
    with _JUDGING:
        verdicts = judge(Source.RUN, checks, trace, broke.append)
        for job in reversed(trace.before):
            verdicts += judge_further(Source.RUN, checks, job, broke.append, verdicts)
    merged = merge(verdicts)
    assert not broke, "\n".join(broke)
    assert not [one for one in merged.results if one.outcome is Outcome.ERROR]
    return replace(ran, trace=trace, results=merged.results, findings=merged.findings)


def _stopped(statuses: Sequence[int], seconds: float, timed_out: bool, ended_at: float | None) -> Stopped:
    return Stopped(int(any(statuses)), seconds, timed_out, ended_at=ended_at)


def _summary(rank: int, status: int) -> str:
    """A rank's end as torchrun's summary tells it."""
    return f"  rank      : {rank} (local_rank: {rank})\n  exitcode  : {status} (pid: 1)\n" if status else ""


class _Server:
    """The process from which ranks are forked; one for each process of pytest."""

    def __init__(self) -> None:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("DDPDOCTOR_", "TORCHELASTIC_", "MASTER_"))
            and name not in ("RANK", "WORLD_SIZE")
        }
        environ = {**kept, "OMP_NUM_THREADS": "1", "TORCH_FR_BUFFER_SIZE": "2000", "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            [sys.executable, "-u", str(Path(__file__).with_name("preloaded.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environ,
            cwd=ROOT,
        )
        atexit.register(self._end)

    @property
    def pid(self) -> int:
        """Of the process from which the ranks are forked."""
        return self._process.pid

    def ask(self, request: Mapping[str, Any], stops: Callable[[], bool] | None = None) -> dict[str, Any]:
        """Have the ranks of a script run to their end, or until it is said that they have stopped."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        watcher.note("starts ranks")
        print(json.dumps(request), file=self._process.stdin, flush=True)
        while stops and not select.select([self._process.stdout], [], [], _LOOK_SECONDS)[0]:
            if stops():
                Path(request["run"], "stop").touch()
                stops = None
        reply = self._process.stdout.readline()
        assert reply, "the preloaded process has died"
        return dict(json.loads(reply))

    def _end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


@cache
def _server(slot: int) -> _Server:
    return _Server()


if (
    __name__ == "__main__"
):  # python -m tests.support.forked SCRIPT [NPROC [HANG_AFTER]]: look at one while writing it
    import tempfile

    from ddpdoctor.report.detail import finding_lines

    with tempfile.TemporaryDirectory() as place:
        path, size = Path(sys.argv[1]), int((*sys.argv[2:3], "2")[0])
        patience = float(sys.argv[3]) if sys.argv[3:] else None
        done = (
            run_alone(path, Path(place, "ran"), str(size))
            if starts_ranks_itself(path)
            else run_forked(
                path, Path(place, "ran"), nproc=size, hang_after=patience, rehearse=needs_gpus(path)
            )
        )
        for found in done.findings:
            print("\n".join(line.text for line in finding_lines(found, 100)), end="\n\n")
        notes = {one.text for rank in done.trace.ranks if rank.recording for one in rank.recording.notes}
        print(*done.outputs, *done.errors, *sorted(notes), sep="\n")
