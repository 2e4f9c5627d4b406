"""The one door to this machine: everything a host fact is made from, read through one small interface.

In its place, tests have a recording.
"""

import ctypes
import errno
import importlib.metadata
import importlib.util
import os
import random
import resource
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ddpdoctor.host.nvml import Gpus, read_gpus
from ddpdoctor.host.proc import without_padding
from ddpdoctor.launch import DEFAULT_MASTER_PORT

_EPHEMERAL_START = 32768
"""Where Linux begins to give ports to outgoing connections, unless it is told otherwise."""
_FREE_PORT_TRIES = 100
_KERNEL_LOG_BYTES = 1 << 20
_SYSLOG_ACTION_READ_ALL = 3

RESOLVE_SECONDS = 5.0
"""For a host name; torch waits no shorter."""


@dataclass(frozen=True)
class Interface:
    """A network interface with its addresses, IPv4 and IPv6 without zone."""

    name: str
    addresses: tuple[str, ...] = ()
    up: bool = True
    """0 where the driver does not say."""

    def __str__(self) -> str:
        """``eth0 is up: 10.0.0.1``."""
        return f"{self.name} is {'up' if self.up else 'down'}: {', '.join(self.addresses) or 'no address'}"

    @property
    def loopback(self) -> bool:
        """Whether every address stays on this host."""
        return bool(self.addresses) and all(a.startswith("127.") or a == "::1" for a in self.addresses)


def loopback_down(interfaces: Iterable[Interface]) -> str | None:
    """The name of a loopback interface that is down, and then has no address or keeps it; None where one is up."""
    loopbacks = [interface for interface in interfaces if interface.loopback or interface.name == "lo"]
    return loopbacks[0].name if loopbacks and not any(interface.up for interface in loopbacks) else None


@dataclass(frozen=True)
class Process:
    """A process as /proc shows it."""

    pid: int
    command: tuple[str, ...] = ()
    user: str = ""
    parent: int = 0
    age: float = 0.0
    """Seconds since it started."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """Empty where we may not read it."""


@dataclass(frozen=True)
class Listener:
    """A TCP socket that listens, and the process that owns it where we may know."""

    port: int
    address: str
    process: Process | None = None


@dataclass(frozen=True)
class Disk:
    """What a folder's filesystem has. Sizes in bytes."""

    total: int
    free: int
    """Free for this user, not for root."""
    free_inodes: int = -1
    """-1 where the filesystem does not count them."""


class System:
    """The live machine. No method raises for a thing that is absent or unreadable."""

    @property
    def environ(self) -> Mapping[str, str]:
        return os.environ

    def read_text(self, path: str) -> str | None:
        """A file's text; None where it is absent or unreadable."""
        try:
            return Path(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    def list_dir(self, path: str) -> tuple[str, ...]:
        """The names in a folder, sorted; empty where it is absent or unreadable."""
        try:
            return tuple(sorted(os.listdir(path)))  # noqa: PTH208 - names, not paths
        except OSError:
            return ()

    def working_directory(self) -> str | None:
        """The current directory; None where it was deleted."""
        try:
            return os.getcwd()  # noqa: PTH109 - a name
        except OSError:
            return None

    def hostname(self) -> str:
        return socket.gethostname()

    def resolve(self, name: str) -> tuple[str, ...]:
        """The addresses of a host name; empty where it does not resolve, or not in time."""
        addresses: list[str] = []

        def look_up() -> None:
            try:
                infos = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            except (OSError, UnicodeError):
                return
            addresses.extend(dict.fromkeys(str(info[4][0]).partition("%")[0] for info in infos))

        # getaddrinfo has no deadline, and a dead name server takes its time.
        looking = threading.Thread(target=look_up, daemon=True)
        looking.start()
        looking.join(RESOLVE_SECONDS)
        return tuple(addresses)

    def interfaces(self) -> tuple[Interface, ...]:
        import psutil

        stats = psutil.net_if_stats()
        inet = (socket.AF_INET, socket.AF_INET6)
        return tuple(
            Interface(
                name,
                tuple(a.address.partition("%")[0] for a in addresses if a.family in inet),
                up=stats[name].isup if name in stats else True,
            )
            for name, addresses in psutil.net_if_addrs().items()
        )

    def rlimit(self, name: str) -> tuple[int, int]:
        """The soft and hard limit ``RLIMIT_<name>``; -1 means unlimited."""
        return resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))

    def disk(self, path: str) -> Disk | None:
        """The filesystem that a folder lies on; None where the folder is absent."""
        try:
            filesystem = os.statvfs(path)
        except OSError:
            return None
        unit, inodes = filesystem.f_frsize, filesystem.f_favail if filesystem.f_files else -1
        return Disk(filesystem.f_blocks * unit, filesystem.f_bavail * unit, inodes)

    def write_probe(self, folder: str, size: int) -> int:
        """Write, sync and remove a file of ``size`` bytes in a folder; 0, or the errno of what failed."""
        try:
            with tempfile.NamedTemporaryFile(dir=folder, prefix=".ddpdoctor-probe-") as probe:
                probe.write(b"\0" * size)
                probe.flush()
                os.fsync(probe.fileno())
        except OSError as failed:
            return failed.errno or errno.EIO
        return 0

    def file_size(self, path: str) -> int:
        """A file's size in bytes; 0 where it is absent."""
        try:
            return Path(path).stat().st_size
        except OSError:
            return 0

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)  # noqa: PTH112 - Path's raises where a folder above may not be entered

    def exists(self, path: str) -> bool:
        return os.path.exists(path)  # noqa: PTH110 - Path's raises where a folder above may not be entered

    def try_bind(self, address: str, port: int) -> int:
        """Bind as torch's TCPStore does (SO_REUSEADDR) and let go; 0, or the errno. Port 0 is any."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((address, port))
                probe.listen(1)
        except OSError as failed:
            return failed.errno or errno.EIO
        return 0

    def free_port(self) -> int:
        """A port that nobody has at this moment, below the ephemeral range where one is found there. Any of many: two
        checks that run at once would otherwise both be told the first."""
        for port in random.sample(range(DEFAULT_MASTER_PORT + 1, _EPHEMERAL_START), _FREE_PORT_TRIES):
            if self.try_bind("", port) == 0:
                return port
        with socket.socket() as probe:
            probe.bind(("", 0))
            return int(probe.getsockname()[1])

    def listeners(self, port: int) -> tuple[Listener, ...]:
        """Who listens on a TCP port, other users' processes without an owner where we may not look."""
        import psutil

        try:
            connections = psutil.net_connections("tcp")
        except (psutil.Error, OSError):
            return ()
        return tuple(
            Listener(c.laddr.port, c.laddr.ip, self.process(c.pid) if c.pid else None)
            for c in connections
            if c.status == psutil.CONN_LISTEN and c.laddr and c.laddr.port == port
        )

    def process(self, pid: int) -> Process | None:
        """One process; None where it is gone."""
        import psutil

        try:
            return _process(psutil.Process(pid))
        except psutil.Error:
            return None

    def processes(self) -> tuple[Process, ...]:
        import psutil

        processes = []
        for running in psutil.process_iter():
            try:
                processes.append(_process(running))
            except psutil.Error:
                continue
        return tuple(processes)

    def pid(self) -> int:
        return os.getpid()

    def cpus(self) -> tuple[int, int]:
        """The CPUs of this machine, and those that this process may run on."""
        return os.cpu_count() or 1, len(os.sched_getaffinity(0))

    def memory(self) -> tuple[int, int]:
        """Bytes of memory of this machine: in all, and available."""
        import psutil

        memory = psutil.virtual_memory()
        return int(memory.total), int(memory.available)

    def which(self, program: str) -> str | None:
        """The path of a program that PATH finds."""
        return shutil.which(program)

    def installed(self, distribution: str) -> str | None:
        """The version of an installed distribution; None where it is not installed."""
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            return None

    def package_folder(self, package: str) -> str | None:
        """The folder of an importable package, without importing it."""
        try:
            spec = importlib.util.find_spec(package)
        except (ImportError, ValueError):
            return None
        locations = list(spec.submodule_search_locations or ()) if spec else []
        return locations[0] if locations else None

    def gpus(self) -> Gpus:
        """The GPUs, by NVML; never initialises CUDA."""
        return read_gpus()

    def kernel_log(self) -> str:
        """The kernel's messages since boot, as far back as it keeps them; empty where we may not read them."""
        # klogctl copies and returns at once; reading /dev/kmsg would wait for the next message.
        read = getattr(ctypes.CDLL(None), "klogctl", lambda *_: -1)
        buffer = ctypes.create_string_buffer(_KERNEL_LOG_BYTES)
        length = read(_SYSLOG_ACTION_READ_ALL, buffer, len(buffer))
        return buffer.raw[: max(0, length)].decode("utf-8", errors="replace")


def _process(running: Any) -> Process:
    """psutil's process as ours; what we may not read is empty."""
    import time

    import psutil

    def ask(what: Any, default: Any) -> Any:
        try:
            return what()
        except (psutil.AccessDenied, psutil.ZombieProcess, OSError):
            return default

    with running.oneshot():
        return Process(
            running.pid,
            without_padding(ask(running.cmdline, ())) or (ask(running.name, ""),),
            str(ask(running.username, "")),
            int(ask(running.ppid, 0)),
            max(0.0, time.time() - float(ask(running.create_time, time.time()))),
            ask(running.environ, {}),
        )
