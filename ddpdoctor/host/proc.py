"""Processes in /proc: where each has its folder, which are below one, and whether one is gone."""

from __future__ import annotations

import os
from collections.abc import Collection, Container, Mapping
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


def connected_outside(files: Mapping[int, Collection[int]], job: Container[int]) -> set[int]:
    """Those of some processes that have their connections to others than the processes of a job.

    Args:
        files: the sockets of each process, by their numbers; none where they are not seen. A socket that is no
            internet connection has its other end on this host, and counts as one to the job.
    """
    try:
        connections = psutil.net_connections("inet")
    except (psutil.Error, OSError):
        return set(files)
    ends = {(connection.pid, connection.fd): connection.raddr for connection in connections}
    of_job = {None, *(connection.laddr for connection in connections if connection.pid in job)}
    return {
        pid
        for pid, sockets in files.items()
        if not any(ends.get((pid, socket)) in of_job for socket in sockets)
    }
