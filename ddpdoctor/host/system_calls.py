"""The system call in which a thread stands, and on what, as Linux shows it in /proc."""

import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path

from ddpdoctor.host.proc import text_of

_X86_64 = {
    **{0: "read", 1: "write", 7: "poll", 16: "ioctl", 17: "pread64", 19: "readv", 23: "select", 34: "pause"},
    **{35: "nanosleep", 42: "connect", 43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg"},
    **{47: "recvmsg", 61: "wait4", 72: "fcntl", 73: "flock", 74: "fsync", 75: "fdatasync", 202: "futex"},
    **{220: "semtimedop", 230: "clock_nanosleep", 232: "epoll_wait", 247: "waitid", 257: "openat"},
    **{262: "newfstatat", 270: "pselect6", 271: "ppoll", 281: "epoll_pwait", 288: "accept4"},
}
_AARCH64 = {
    **{22: "epoll_pwait", 25: "fcntl", 29: "ioctl", 32: "flock", 56: "openat", 63: "read", 64: "write"},
    **{65: "readv", 67: "pread64", 72: "pselect6", 73: "ppoll", 79: "newfstatat", 82: "fsync"},
    **{83: "fdatasync", 95: "waitid", 98: "futex", 101: "nanosleep", 115: "clock_nanosleep"},
    **{192: "semtimedop", 202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom", 211: "sendmsg"},
    **{212: "recvmsg", 242: "accept4", 260: "wait4"},
}
_NUMBERS = {"x86_64": _X86_64, "aarch64": _AARCH64}.get(os.uname().machine, {})
_RESTARTED = {"x86_64": 219, "aarch64": 128}.get(os.uname().machine)
"""What the kernel calls a call that it goes on with, after somebody has looked by ptrace."""
_SLEEPS = ("nanosleep", "clock_nanosleep")
_ON_A_FILE = {
    *("read", "pread64", "readv", "recvfrom", "recvmsg", "write", "sendto", "sendmsg"),
    *("accept", "accept4", "connect", "flock", "fcntl", "fsync", "fdatasync", "ioctl"),
}
_ON_DISK = {"read", "pread64", "readv", "write", "fsync", "fdatasync"}
"""Of them, those that only a disk or a network file system keeps waiting, on a regular file."""
_WORDS = {"write": "to", "sendto": "to", "sendmsg": "to", "accept": "on", "accept4": "on"}
_WAITED_IN = {
    "hrtimer_nanosleep": "clock_nanosleep",
    "futex": "futex",
    "do_wait": "wait4",
    "poll_schedule_timeout": "poll",
    "do_poll": "poll",
    "ep_poll": "epoll_wait",
    "pipe_read": "read of a pipe",
    "anon_pipe_read": "read of a pipe",
    "pipe_write": "write to a pipe",
    "anon_pipe_write": "write to a pipe",
    "unix_stream_read_generic": "read of a socket",
    "wait_woken": "read of a socket",
    "sk_wait_data": "read of a socket",
    "locks_lock_inode_wait": "flock",
    "flock_lock_inode_wait": "flock",
}
"""Functions of the kernel by how they begin: where calls are hidden, as ptrace_scope does, these are not always."""
_POLLFD = struct.Struct("ihh")
_MOST_POLLED = 64
_TIMESPEC = struct.Struct("qq")
_ABSOLUTE = 1
"""TIMER_ABSTIME, as Python 3.11 sleeps."""
_CLOCKS = (time.CLOCK_REALTIME, time.CLOCK_MONOTONIC)


@dataclass(frozen=True)
class SystemCall:
    """Where a thread stands in the kernel."""

    text: str = ""
    """``read of a pipe``, ``futex``; empty where it is in none, or may not be seen."""
    sleeps: bool = False
    """Whether it ends by itself, as a sleep does."""
    ends_in: float = 0.0
    """Seconds until such a sleep ends, at most; 0 where that may not be seen."""
    on_disk: bool = False
    """Whether it reads or writes a regular file, and so waits for nothing but its disk."""
    sockets: tuple[int, ...] = ()
    """The open files, by their numbers, of which it waits and which are sockets."""


def call_of(folder: Path, thread: int) -> SystemCall:
    """The call of one thread, by the folder of its process in /proc, and its id there."""
    task = folder / "task" / str(thread)
    if not (words := text_of(task, "syscall").split()) or words[0] == str(_RESTARTED):
        return _by_kernel_function(text_of(task, "wchan").strip())
    if not words[0].isdigit():  # "running", or -1 where it is stopped outside a call
        return SystemCall()
    name = _NUMBERS.get(int(words[0]), f"system call {words[0]}")
    arguments = [int(word, 16) for word in words[1:7]]
    return _named(folder, name, arguments)


def _named(folder: Path, name: str, arguments: list[int]) -> SystemCall:
    if name in _SLEEPS:
        return SystemCall(name, sleeps=True, ends_in=_rest(folder, name, arguments))
    if name in _ON_A_FILE:
        text = f"{name} {_WORDS.get(name, 'of')} {_file(folder, arguments[0])}"
        on_disk = name in _ON_DISK and (folder / "fd" / str(arguments[0])).is_file()
        return SystemCall(text, on_disk=on_disk, sockets=_sockets(folder, arguments[:1]))
    if name in ("poll", "ppoll"):
        polled = _polled(folder, *arguments[:2])
        kinds = ", ".join(dict.fromkeys(_file(folder, number) for number in polled))
        text = f"poll of {kinds}" if kinds else "poll"
        return SystemCall(text, sleeps=arguments[1] == 0, sockets=_sockets(folder, polled))
    if name in ("select", "pselect6"):  # time.sleep before Python 3.11 selects among nothing
        return SystemCall("select", sleeps=arguments[0] == 0, ends_in=_rest(folder, name, arguments))
    if name == "wait4" and 0 < arguments[0] < 1 << 31:
        return SystemCall(f"wait4 for process {arguments[0]}")
    return SystemCall(name)


def _rest(folder: Path, name: str, arguments: list[int]) -> float:
    """Seconds until a sleep ends: it is given how long, or until when."""
    address = arguments[{"nanosleep": 0, "clock_nanosleep": 2}.get(name, 4)]
    data = _memory(folder, address, _TIMESPEC.size)
    if len(data) < _TIMESPEC.size:
        return 0.0
    seconds, parts = _TIMESPEC.unpack(data)
    given: float = seconds + parts / (1e6 if name == "select" else 1e9)
    if name != "clock_nanosleep" or not arguments[1] & _ABSOLUTE:
        return given
    return max(0.0, given - time.clock_gettime(arguments[0])) if arguments[0] in _CLOCKS else 0.0


def _memory(folder: Path, address: int, size: int) -> bytes:
    """Memory of the process; empty where it may not be read."""
    try:
        with (folder / "mem").open("rb", buffering=0) as memory:
            memory.seek(address)
            return memory.read(size) or b""
    except (OSError, ValueError, OverflowError):
        return b""


def _by_kernel_function(function: str) -> SystemCall:
    text = next((call for start, call in _WAITED_IN.items() if function.startswith(start)), "")
    return SystemCall(text, sleeps=text in _SLEEPS)


def _polled(folder: Path, address: int, count: int) -> list[int]:
    """The open files at which a poll looks."""
    if not 0 < count <= _MOST_POLLED:
        return []
    data = _memory(folder, address, count * _POLLFD.size)
    files = [_POLLFD.unpack_from(data, at)[0] for at in range(0, len(data) - 7, _POLLFD.size)]
    return [number for number in files if number >= 0]


def _sockets(folder: Path, files: list[int]) -> tuple[int, ...]:
    return tuple(number for number in files if _file(folder, number) == "a socket")


def _file(folder: Path, number: int) -> str:
    """An open file by its kind, or by its path."""
    try:
        target = os.readlink(folder / "fd" / str(number))  # noqa: PTH115 - not always a path
    except OSError:
        return f"file {number}"
    kind, _, rest = target.partition(":")
    if kind == "anon_inode":
        return f"an {rest.strip('[]')}"
    return f"a {kind}" if kind in ("pipe", "socket") else target
