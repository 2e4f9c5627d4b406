"""Looks at live processes, for tests of what is left of them."""

import time
from collections.abc import Callable
from pathlib import Path


def carrying(value: str, name: str = "DDPDOCTOR_RUN") -> list[int]:
    """The live processes that have this variable in their environment: those of a run, by its mark."""
    mark = f"{name}={value}".encode()
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*") if mark in _environ(folder)]


def _environ(folder: Path) -> list[bytes]:
    try:
        return (folder / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for something to become so; long, since a machine may be busy.

    Raises:
        AssertionError: it did not within this time.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"still not so after {seconds} s"
        time.sleep(0.01)


def running_below(folder: Path) -> list[int]:
    """The live processes whose command line names something in this folder."""
    wanted = str(folder).encode()
    return [int(one.name) for one in Path("/proc").glob("[0-9]*") if wanted in _command(one)]


def _command(folder: Path) -> bytes:
    try:
        return (folder / "cmdline").read_bytes()
    except OSError:
        return b""
