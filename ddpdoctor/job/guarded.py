"""Starts a command under the guard, so that whatever becomes of us, nothing of it survives."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddpdoctor.job.guard import Ending
from ddpdoctor.job.private_view import ORIGINALS

GUARD = Path(__file__).with_name("guard.py")
ENGINE_LOG = "engine.log"
_ROOT = Path(__file__).parents[2]
_ENGINE_GRACE = 0.3
"""Seconds between SIGTERM and SIGKILL: these are our own ranks, and they have nothing to save."""
_PATIENCE = 7.0
"""Seconds that the guard may take beyond the grace it gives; it gives up an unkillable process after 5 s."""


@dataclass
class Running:
    """A command that was started. As a context manager it is stopped on every way out."""

    _process: subprocess.Popen[bytes]
    _report: Path
    _run_id: str
    _grace: float
    _passes_on: bool = False
    _stopped: bool = False

    @property
    def pid(self) -> int:
        """The guard's; everything that the command starts descends from it."""
        return self._process.pid

    def poll(self) -> Ending | None:
        """How it ended; None while it runs."""
        return None if self._process.poll() is None else self._ending

    def wait(self, seconds: float) -> Ending | None:
        """Wait for its end, but no longer than this."""
        if (ending := self.poll()) is not None:
            return ending
        try:
            end = os.fdopen(os.pidfd_open(self.pid), "rb", 0)
        except (AttributeError, OSError):  # Popen.wait looks twenty times a second, which takes a CPU
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
            return self.poll()
        with end, selectors.DefaultSelector() as selector:
            selector.register(end, selectors.EVENT_READ)
            selector.select(seconds)
        return self.poll()

    def send(self, number: int) -> None:
        """Give the guard a signal; one that passes signals on gives it to the command."""
        self._process.send_signal(number)

    def stop(self) -> Ending:
        """End it and everything it started: SIGTERM to the command, the grace, SIGKILL to all."""
        if self._process.poll() is None:
            self._stopped = True
            self._process.terminate()
            try:
                if self._passes_on and self.wait(self._grace) is None:
                    self._process.send_signal(signal.SIGHUP)  # the command had its time
                self._process.wait(self._grace + _PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        return self._ending

    @functools.cached_property
    def _ending(self) -> Ending:
        """Of a process that has ended; what a guard that was killed left is ended here, once."""
        try:
            return Ending(**json.loads(self._report.read_text(encoding="utf-8")))
        except FileNotFoundError:  # it did not start: the guard's exit status says why, or we were faster
            if self._process.returncode < 0:
                self._sweep()
            return Ending(self._process.returncode, self._stopped, {})

    def _sweep(self) -> None:
        """Do what is left to do for a guard that was killed: another one ends what carries the mark of its run."""
        words = ["--run-id", self._run_id, "--grace", "0", "--", sys.executable, "-I", "-c", ""]
        subprocess.run([sys.executable, "-I", str(GUARD), *words], stdin=subprocess.DEVNULL, check=False)

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def new_run_id() -> str:
    """A name for a run that no other process on this host carries."""
    return secrets.token_hex(8)


def python_command(module: str, *arguments: object) -> list[str]:
    """The command that calls the ``main`` of a module of ours, which imports torch, with these arguments. As with
    torchrun, the current directory is not searched: a user's own random.py there is not ours to import."""
    program = (
        f"import sys; sys.path[:] = [path for path in sys.path if path] + [{str(_ROOT)!r}]; "
        f"from {module} import main; main{arguments!r}"
    )
    return [sys.executable, "-c", program]


def start_engine(
    module: str, folder: Path, run_id: str, environ: Mapping[str, str], if_orphaned: Sequence[Path]
) -> Running:
    """Start the ``main`` of a module of ours, which imports torch and forks ranks, with the folder as its argument;
    what it writes goes to ``engine.log`` in there."""
    log = folder / ENGINE_LOG
    return start(
        python_command(module, str(folder)),
        folder=folder,
        run_id=run_id,
        environ=environ,
        grace=_ENGINE_GRACE,
        stdout=log,
        stderr=log,
        if_orphaned=if_orphaned,
    )


_stdin_began: list[int] = []
"""Where a standard input that is a file stood at the first command that read it."""


def _own_stdin() -> int:
    """Our standard input; a file is read anew by each command, while a pipe is empty for those after the first."""
    with contextlib.suppress(OSError):
        position = os.lseek(0, 0, os.SEEK_CUR)
        _stdin_began[:] = _stdin_began or [position]
        os.lseek(0, _stdin_began[0], os.SEEK_SET)
    return 0


def start(
    command: Sequence[str],
    *,
    folder: Path,
    run_id: str,
    environ: Mapping[str, str],
    grace: float,
    stdout: Path,
    stderr: Path,
    if_orphaned: Sequence[Path] = (),
    passes_on: bool = False,
    reads_stdin: bool = False,
) -> Running:
    """Start a command in the current directory.

    Args:
        folder: the guard's report goes here; one folder for each command.
        run_id: every process of the command carries it as DDPDOCTOR_RUN.
        environ: the whole environment of the command.
        grace: seconds between SIGTERM and SIGKILL when it is stopped, and for what it leaves when it ends.
        stdout, stderr: files that are appended to; may be the same.
        if_orphaned: folders that are removed where we die, by SIGKILL too, before it ends.
        passes_on: whether the guard passes SIGTERM and SIGINT on, and the command then ends when it likes.
        reads_stdin: whether its standard input is ours; otherwise it has none.
    """
    report = folder / "guard.json"
    options = [
        *(f"--run-id={run_id}", f"--grace={grace}", f"--report={report}", f"--parent={os.getpid()}"),
        *(f"--journal={folder / ORIGINALS}", *(f"--if-orphaned={path}" for path in if_orphaned)),
        *(("--pass-on",) if passes_on else ()),
    ]
    with stdout.open("ab") as out, stderr.open("ab") as err:
        process = subprocess.Popen(
            [sys.executable, "-I", str(GUARD), *options, "--", *command],
            stdin=_own_stdin() if reads_stdin else subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=environ,
            start_new_session=True,  # a terminal's Ctrl-C reaches us alone, and we stop it in order
        )
    return Running(process, report, run_id, grace, passes_on)
