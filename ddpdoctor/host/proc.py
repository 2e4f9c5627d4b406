"""Processes in /proc: where each has its folder, which are below one, and whether one is gone."""

from __future__ import annotations

import os
from collections.abc import Container
from functools import cache
from pathlib import Path

import psutil


@cache
def _proc_is_ours() -> bool:
    """Whether processes have their pids as names in /proc: not in a pid namespace that has none of its own."""
    try:
        return Path("/proc/self").readlink().name == str(os.getpid())
    except OSError:  # not Linux
        return True


@cache
def _number_in_proc(pid: int) -> int:
    """The name in /proc of a process of our pid namespace; raises NoSuchProcess where it has none."""
    namespace = Path("/proc/self/ns/pid").readlink()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "ns/pid").readlink() == namespace and _pid_inside(folder) == pid:
                return int(folder.name)
        except OSError:
            continue
    raise psutil.NoSuchProcess(pid)


def _pid_inside(folder: Path) -> int:
    """The pid that a process itself sees."""
    status = (folder / "status").read_text(errors="replace")
    return next(int(line.split()[-1]) for line in status.splitlines() if line.startswith("NSpid:"))


def folder_of(pid: int) -> Path | None:
    """The folder in /proc of a process of our pid namespace; None where it has none."""
    try:
        number = pid if _proc_is_ours() else _number_in_proc(pid)
    except (psutil.Error, OSError):
        return None
    return Path("/proc", str(number))


def is_gone(pid: int) -> bool:
    """Whether a process has ended; a zombie has."""
    try:
        status = psutil.Process(pid if _proc_is_ours() else _number_in_proc(pid)).status()
    except psutil.Error:
        return True
    return status in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


def descendants(pid: int) -> list[int]:
    """The processes below this one, parents first; none where it is gone."""
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return []


def is_connected_to(pid: int, file: int, peers: Container[int]) -> bool | None:
    """Whether an open file of a process is a connection to one of these processes; None where that is not seen.

    A socket that is no internet connection has its other end on this host, and counts as connected.
    """
    try:
        connections = psutil.net_connections("inet")
    except (psutil.Error, OSError):
        return None
    remote = next((one.raddr for one in connections if (one.pid, one.fd) == (pid, file)), None)
    return remote is None or any(one.laddr == remote and one.pid in peers for one in connections)
