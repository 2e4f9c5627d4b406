"""Runs the command as a user would, in a process of its own; or in this one, where it starts no process itself."""

import contextlib
import io
import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ddpdoctor.cli import run

ROOT = Path(__file__).parents[2]
SECONDS = 600
"""Generous: two cores may be running another group, or stand still for a minute."""
_LAUNCHER = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "NCCL_DEBUG",
    "TORCH_DISTRIBUTED_DEBUG",
)


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        """What ``--format json`` printed."""
        found: dict[str, Any] = json.loads(self.out)
        return found

    def codes(self, levels: Sequence[str] = ("fail", "warn")) -> set[str]:
        """The codes of the findings above info."""
        return {finding["code"] for finding in self.report["findings"] if finding["level"] in levels}

    def outcome(self, code: str) -> dict[str, Any]:
        """One check's line."""
        return next(line for line in self.report["checks"] if line["code"] == code)


def environment(changes: Mapping[str, str]) -> dict[str, str]:
    """This process's environment without a launcher's variables, and with the changes."""
    kept = {name: value for name, value in os.environ.items() if name not in _LAUNCHER}
    path = os.pathsep.join(filter(None, [changes.get("PYTHONPATH"), str(ROOT), kept.get("PYTHONPATH")]))
    return {**kept, **changes, "PYTHONPATH": path}


def ddpdoctor(*arguments: str, cwd: Path, env: Mapping[str, str] | None = None, **popen: Any) -> Done:
    """Run ``ddpdoctor`` with these arguments to its end."""
    return python("-m", "ddpdoctor", *arguments, cwd=cwd, env=env, **popen)


def python(*arguments: str, cwd: Path, env: Mapping[str, str] | None = None, **popen: Any) -> Done:
    """Run this Python with these arguments to its end, where ddpdoctor is found."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment(env or {}),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        **popen,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def in_process(*arguments: str, cwd: Path, env: Mapping[str, str] | None = None) -> Done:
    """Run a command line in this process: a command that only reads takes a tenth of the time."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(cwd)
        for name, value in (env or {}).items():
            patch.setenv(name, value)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = run(arguments)
    return Done(status, out.getvalue(), err.getvalue())


def free_port() -> int:
    """A free port below the ephemeral range; another test process, or thread, takes other ones."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    for port in random.sample(range(20000 + 1000 * worker, 21000 + 1000 * worker), 1000):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port")


def check(*arguments: str, cwd: Path, env: Mapping[str, str] | None = None, **popen: Any) -> Done:
    """``ddpdoctor check`` of the host and the group, apart from others and with time enough, as JSON."""
    select = () if "--select" in arguments else ("--select", "host,group")
    limit = () if "--timeout" in arguments else ("--timeout", str(SECONDS / 2))
    words = (*arguments, *apart(arguments), *select, *limit, "--format", "json", "--quiet")
    return ddpdoctor("check", *words, cwd=cwd, env=env, **popen)


def apart(arguments: Sequence[str] = ()) -> tuple[str, ...]:
    """Options beside these that keep out of a check what other tests, and other users, do on this machine."""
    port = () if "--master-port" in arguments else ("--master-port", str(free_port()))
    return port if "--ignore" in arguments else (*port, "--ignore", "stale-processes")
