"""Processes in /proc: where each has its folder, which are below one, what each runs, and its environment now."""

import ctypes
import os
from collections.abc import Collection, Container, Mapping, Sequence
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


def text_of(folder: Path | None, name: str) -> str:
    """A file in a process' folder; empty where it may not be seen, or the process is gone."""
    try:
        return (folder / name).read_text(errors="replace") if folder else ""
    except OSError:
        return ""


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
    """Those of some processes that have their connections to others than the processes of a job, by the numbers of
    their sockets; none where they are not seen. A socket that is no internet connection has its other end on this host,
    and counts as one to the job."""
    try:
        connections = psutil.net_connections("inet")
    except (psutil.Error, OSError):
        return set(files)
    ends = {(connection.pid, connection.fd): connection.raddr for connection in connections}
    of_job = {None, *(connection.laddr for connection in connections if connection.pid in job)}
    inside = {pid for pid, sockets in files.items() if any(ends.get((pid, it)) in of_job for it in sockets)}
    return set(files) - inside


SERVANTS = (
    "multiprocessing.resource_tracker",
    "multiprocessing.semaphore_tracker",
    "multiprocessing.forkserver",
)
"""Children of multiprocessing's own, which wait all the time and belong to nobody's work."""


def program_of(pid: int) -> str | None:
    """The file name of what a process runs, whatever it calls itself; None where that may not be seen."""
    folder = folder_of(pid)
    try:
        return (folder / "exe").readlink().name if folder else None
    except OSError:
        return None


def without_padding(words: Sequence[str]) -> tuple[str, ...]:
    """A command line; of a process that has renamed itself its name, without the empty words behind it."""
    return tuple(words if any(words[1:]) else words[:1])


def runs_python(pid: int) -> bool:
    """Whether a process is seen to run Python."""
    return "python" in (program_of(pid) or "")


def loads_torch(pid: int) -> bool:
    """Whether a process has torch's library in memory."""
    return "/libtorch" in text_of(folder_of(pid), "maps")


def loads_driver(pid: int) -> bool:
    """Whether a process has a driver of GPUs in memory, and so may wait for one."""
    maps = text_of(folder_of(pid), "maps")
    return any(name in maps for name in ("/libcuda.so", "/libamdhip64.so"))


_POINTER = 8
_MOST = 4096
"""Variables that are read."""
_LONGEST = 512
"""Bytes of one; those that number ranks and name hosts are shorter."""


def live_environ(pid: int, names: Container[str]) -> dict[str, str]:
    """Those of the variables that a process has now, as after ``os.environ["RANK"] = "1"`` in it.

    Empty where it may not be looked into, or has another C library than this process: the place of its variables is
    known from our own.
    """
    folder, place = folder_of(pid), _place()
    if folder is None or place is None:
        return {}
    file, offset = place
    try:
        start = next((start for start, of in _mappings(folder) if of == file), None)
        if start is None:
            return {}
        with (folder / "mem").open("rb", buffering=0) as memory:
            return _variables(memory.fileno(), start + offset, names)
    except OSError:
        return {}


@cache
def _place() -> tuple[str, int] | None:
    """The file that has C's ``environ``, and how far behind its beginning in memory that is."""
    try:
        address = ctypes.addressof(ctypes.c_void_p.in_dll(ctypes.CDLL(None), "environ"))
        mappings = _mappings(Path("/proc/self"))
    except (OSError, ValueError, TypeError):  # not Linux
        return None
    if ctypes.sizeof(ctypes.c_void_p) != _POINTER or not mappings:
        return None
    # What is zero at first lies behind the last part of the file that has it, and belongs to no file.
    file = [of for start, of in mappings if start <= address][-1]
    return file, address - next(start for start, of in mappings if of == file)


def _mappings(folder: Path) -> list[tuple[int, str]]:
    """The beginning of each part of a process' memory that is a file's, with the device and inode of that file."""
    parts = [line.split(maxsplit=5) for line in text_of(folder, "maps").splitlines()]
    return [(int(part[0].partition("-")[0], 16), f"{part[3]} {part[4]}") for part in parts if part[4] != "0"]


def _variables(memory: int, place: int, names: Container[str]) -> dict[str, str]:
    array = int.from_bytes(os.pread(memory, _POINTER, place), "little")
    variables = {}
    for number in range(_MOST):
        if not (address := int.from_bytes(os.pread(memory, _POINTER, array + number * _POINTER), "little")):
            break
        text = os.pread(memory, _LONGEST, address).partition(b"\0")[0].decode(errors="replace")
        name, _, value = text.partition("=")
        if name in names:
            variables[name] = value
    return variables
