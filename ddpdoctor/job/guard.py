"""Runs one command so that nothing of it survives.

    python -I guard.py --run-id ID [--grace SECONDS] [--report FILE] [--parent PID] [--if-orphaned FOLDER]...
        [--journal FOLDER] [--pass-on] -- COMMAND...

The command ends, this process gets SIGTERM or SIGINT, or its parent dies, by SIGKILL too: in each case every
process that the command started is gone before this one is. A worker that leads its own session, as
torchrun's do, or a daemon that forked twice, is found as a descendant, because orphans are handed to the
nearest subreaper, which is this process; and whatever else carries DDPDOCTOR_RUN=ID in its environment is
found by that. Then what the journal tells is undone (see journal.py); where the parent died, the folders that it would
have removed are removed too. With --pass-on SIGTERM and SIGINT are the command's, which then ends when it likes, and
SIGHUP is ours. Exits with the command's status, 128 + n where a signal n ended it.

Standard library only, and run by path: it starts in milliseconds and works where an import would not.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import functools
import json
import os
import runpy
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

MARK = "DDPDOCTOR_RUN"
"""The environment variable that every process of a run carries."""
NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit statuses where the command did not start, as a shell has them."""
_STOP = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
_PARENT_DIED = signal.SIGUSR1
_LOOK_AGAIN = 0.5
"""Seconds between looks at the parent, for systems that do not announce its death."""
_AGAIN = 2.0
"""Seconds after which a signal is another one: who signals every process of a job reaches us a second time."""
_SETTLE = 0.02
"""Seconds between looks at processes that are about to be gone."""
_UNKILLABLE = 5.0
"""Seconds after which a process that SIGKILL does not end (stuck in the kernel) is given up."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


class Guard:
    """The command, and everything that descends from it."""

    def __init__(self, run_id: str, parent: int) -> None:
        self.run_id, self.parent = run_id, parent
        self.pid = 0
        self.status: int | None = None
        """The command's exit status once it ended; negative for a signal."""
        self.asked: list[int] = []
        """The signals that asked us to stop."""
        self._passed = -_AGAIN
        self._wakes = self._listen()

    @staticmethod
    def _listen() -> int:
        """Turn signals into bytes on a pipe, so that waiting for them and for time is one call."""
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        os.set_blocking(reader, False)
        for number in (*_STOP, _PARENT_DIED, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)  # the byte on the pipe is the message
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        return reader

    def start(self, command: Sequence[str], *, apart: bool) -> None:
        """Start the command with the mark in its environment, in a process group of its own where it is apart. Raises
        OSError where it is not there or may not be executed."""
        environ = {**os.environ, MARK: self.run_id}
        # Python ignores these two, and a command would inherit that.
        ignored = (signal.SIGPIPE, signal.SIGXFSZ)
        spawn = functools.partial(os.posix_spawnp, setpgroup=0) if apart else os.posix_spawnp
        self.pid = spawn(command[0], tuple(command), environ, setsigdef=ignored)

    def wait(self, seconds: float) -> None:
        """Wait for a signal, but no longer than this; then take note of what ended."""
        if select.select([self._wakes], [], [], seconds)[0]:
            self.asked += [number for number in os.read(self._wakes, 4096) if number in _STOP]
        self._reap()

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self.pid:
                    self.status = os.waitstatus_to_exitcode(ended[1])

    @property
    def told_to_stop(self) -> bool:
        """Whether a signal said so, or nobody is left to want the result."""
        return bool(self.asked) or self.orphaned

    def pass_on(self) -> None:
        """Give the command, and what it started in its process group, the signals that are not meant for us."""
        theirs = {number for number in self.asked if number != signal.SIGHUP}
        self.asked = [number for number in self.asked if number == signal.SIGHUP]
        if theirs and time.monotonic() - self._passed > _AGAIN:
            self._passed = time.monotonic()
            for number in theirs:
                _send(-self.pid, number)

    @property
    def orphaned(self) -> bool:
        return os.getppid() != self.parent

    def let_end(self, seconds: float) -> list[int]:
        """Give what is alive this long to end, less where another signal asks for haste; return what is left."""
        deadline, asked = time.monotonic() + seconds, len(self.asked)
        while (left := self.alive()) and time.monotonic() < deadline and len(self.asked) == asked:
            self.wait(_SETTLE)
        return left

    def kill(self) -> list[int]:
        """SIGKILL until nothing is left, since a process may fork while it is being killed; return what stays."""
        deadline = time.monotonic() + _UNKILLABLE
        while ((left := self.alive()) or self.status is None) and time.monotonic() < deadline:
            for pid in left:
                _send(_here(pid), signal.SIGKILL)
            self.wait(_SETTLE)
        return left

    def alive(self) -> list[int]:
        """The processes of this run by their numbers in /proc, zombies left out."""
        parents = dict(_parents())
        mark, guard = f"{MARK}={self.run_id}".encode(), _own_number()
        return [
            pid for pid in parents if pid != guard and (_descends(pid, parents, guard) or _has(pid, mark))
        ]


class Ending(NamedTuple):
    """How a command ended; what the report says."""

    status: int
    """Its exit status; negative for a signal, SIGKILL's where not even that ended it."""
    stopped: bool
    """Whether we ended it."""
    left_behind: dict[str, str]
    """Processes that outlived a command that ended by itself, and were killed: command lines by process id."""


def _send(pid: int, number: int) -> None:
    if not pid:
        return  # kill() would take 0 for our own process group
    # It is gone already, or became another user's (sudo); the caller's deadline ends the attempt.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _parents() -> Iterator[tuple[int, int]]:
    """Every live process and its parent."""
    for name in os.listdir("/proc"):  # noqa: PTH208 - names, not paths
        if name.isdigit():
            try:
                stat = Path("/proc", name, "stat").read_bytes()
            except OSError:
                continue
            state, parent = stat.rpartition(b")")[2].split()[:2]  # the name before it may contain anything
            if state not in b"ZX":
                yield int(name), int(parent)


def _own_number() -> int:
    """Ours in /proc, which is not our pid where /proc belongs to another pid namespace (``unshare --pid``)."""
    return int(Path("/proc/self").readlink().name)


def _here(number: int) -> int:
    """The pid, as kill() takes it, of a process that has this number in /proc; 0 where it is gone."""
    if _own_number() == os.getpid():
        return number
    ours, theirs = _pids("self"), _pids(str(number))
    return int(theirs[len(ours) - 1]) if len(theirs) >= len(ours) else 0


def _pids(name: str) -> list[str]:
    """A process's pid in each of its pid namespaces, from the one that /proc belongs to inwards."""
    try:
        status = Path("/proc", name, "status").read_text(errors="replace")
    except OSError:
        return []
    return next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])


def _descends(pid: int, parents: dict[int, int], guard: int) -> bool:
    while pid in parents and pid != guard:
        pid = parents[pid]
    return pid == guard


def _has(pid: int, mark: bytes) -> bool:
    try:
        return mark in Path("/proc", str(pid), "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def remove_all(folder: Path) -> None:
    """Remove a folder with all that is in it, also what its owner may not look into, as the layers of an overlay."""

    def allow(_: object, path: str, __: object) -> None:
        with contextlib.suppress(OSError):
            for place in (Path(path).parent, Path(path)):
                if place.is_dir() and not place.is_symlink():
                    place.chmod(0o700)
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)  # noqa: PTH108, PTH112

    shutil.rmtree(folder, onerror=allow)
    shutil.rmtree(folder, ignore_errors=True)


def _command_of(pid: int) -> str:
    try:
        words = Path("/proc", str(pid), "cmdline").read_bytes()
    except OSError:
        return ""
    return words.replace(b"\0", b" ").decode(errors="replace").strip()


def _ask_the_kernel() -> None:
    """Have orphans handed to us, and hear of our parent's death. The death of the parent's *thread* that started us
    counts too, so the signal only makes us look."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, int(_PARENT_DIED), 0, 0, 0)


def _run(
    guard: Guard, command: Sequence[str], grace: float, journal: Path | None, *, passes_on: bool
) -> Ending:
    """Start the command, wait for its end or ours, and leave nothing."""
    _ask_the_kernel()
    guard.start(command, apart=passes_on)
    while guard.status is None and not guard.told_to_stop:
        guard.wait(_LOOK_AGAIN)
        if passes_on:
            guard.pass_on()
    stopped = guard.status is None
    if stopped:
        _send(guard.pid, signal.SIGTERM)
    # Helpers of a command that ended (multiprocessing's resource tracker) end by themselves, a moment later.
    left = {str(pid): _command_of(pid) for pid in guard.let_end(grace)}
    for pid in guard.kill():
        print(f"guard: pid {pid} does not end on SIGKILL: {_command_of(pid)}", file=sys.stderr)
    if journal and journal.is_dir() and any(journal.iterdir()):
        runpy.run_path(str(Path(__file__).with_name("journal.py")))["play_back"](journal)
    status = -signal.SIGKILL if guard.status is None else guard.status
    return Ending(status, stopped, {} if stopped else left)


def _write(report: Path, ending: Ending) -> None:
    part = report.with_name(report.name + ".part")
    part.write_text(json.dumps(ending._asdict()), encoding="utf-8")
    part.replace(report)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="guard.py", allow_abbrev=False)
    parser.add_argument("--run-id", required=True)
    parser.add_argument("--grace", type=float, default=1.0)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--parent", type=int, default=os.getppid())
    parser.add_argument("--if-orphaned", type=Path, action="append", default=[])
    parser.add_argument("--journal", type=Path)
    parser.add_argument("--pass-on", action="store_true")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Parse, run, report; the exit status is the command's."""
    ours = arguments.index("--")
    options, command = _parse(arguments[:ours]), arguments[ours + 1 :]
    guard = Guard(options.run_id, options.parent)
    try:
        ending = _run(guard, command, options.grace, options.journal, passes_on=options.pass_on)
    except OSError as error:
        if guard.pid:
            raise
        print(f"guard: {command[0]} did not start: {error.strerror}", file=sys.stderr)
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
    if options.report:
        with contextlib.suppress(OSError):  # on a full disk our exit status has to do
            _write(options.report, ending)
    for folder in options.if_orphaned if guard.orphaned else ():
        remove_all(folder)
    return ending.status if ending.status >= 0 else 128 - ending.status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
