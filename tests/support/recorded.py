"""A machine from a recording, so that a check is tested on a host with 8 GPUs without one."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any

from ddpdoctor.host.nvml import Gpu, Gpus
from ddpdoctor.host.system import Disk, Interface, Listener, Process, System
from ddpdoctor.recorder.events.decode import from_plain


def _said(key: str, plain: Any) -> Any:
    """A question without arguments: what the recording says under this key, or what a plain host has."""
    kind: type = type(plain)
    return lambda self: kind(self._get(key, plain))


def _of(key: str, plain: Any = None) -> Any:
    """A question about a name: what the recording says of it under this key."""
    return lambda self, name: self._get(key, {}).get(name, plain)


class RecordedSystem(System):
    """A machine from a recording. Absent keys mean a plain healthy host without GPUs.

    Keys: environ, files (path to text), folders (path to names), hostname, resolve (name to addresses),
    interfaces, rlimits, sizes (path to bytes), disks (path to Disk fields), write_errors (folder to errno name),
    working_directory, bound (ports taken), listeners, processes, pid, cpus, memory, programs (name to path),
    installed, packages, gpus, kernel_log.
    """

    def __init__(self, recording: Mapping[str, Any]) -> None:
        self.recording = dict(recording)

    read_text, file_size = _of("files"), _of("sizes", 0)
    which, package_folder = _of("programs"), _of("packages")
    hostname, kernel_log, pid = _said("hostname", "node1"), _said("kernel_log", ""), _said("pid", 1000)
    cpus, memory = _said("cpus", (64, 64)), _said("memory", (256 * 2**30, 200 * 2**30))

    def _get(self, key: str, default: Any) -> Any:
        value = self.recording.get(key)
        return default if value is None else value

    @property
    def environ(self) -> Mapping[str, str]:
        return {name: str(value) for name, value in self._get("environ", {}).items()}

    def list_dir(self, path: str) -> tuple[str, ...]:
        prefix = path.rstrip("/") + "/"
        below = (
            str(name)[len(prefix) :].partition("/")[0]
            for name in (*self._get("files", {}), *self._get("folders", {}))
            if str(name).startswith(prefix)
        )
        return tuple(sorted({*below, *self._get("folders", {}).get(path, ())}))

    def working_directory(self) -> str | None:
        folder = self.recording.get("working_directory", "/home/user")
        return None if folder is None else str(folder)

    def resolve(self, name: str) -> tuple[str, ...]:
        known = {"localhost": ["127.0.0.1"], "node1": ["10.0.0.1"]}
        numeric = [name] if set(name) <= set("0123456789.") and name.count(".") == 3 else []
        return tuple(self._get("resolve", {}).get(name, known.get(name, numeric)))

    def interfaces(self) -> tuple[Interface, ...]:
        plain = [
            {"name": "lo", "addresses": ["127.0.0.1", "::1"]},
            {"name": "eth0", "addresses": ["10.0.0.1"]},
        ]
        return tuple(from_plain(Interface, interface) for interface in self._get("interfaces", plain))

    def rlimit(self, name: str) -> tuple[int, int]:
        plain = {"NOFILE": (1048576, 1048576), "MEMLOCK": (-1, -1), "NPROC": (-1, -1), "AS": (-1, -1)}
        soft, hard = self._get("rlimits", {}).get(name, plain.get(name, (-1, -1)))
        return int(soft), int(hard)

    def disk(self, path: str) -> Disk | None:
        disks = self._get("disks", {"/": {"total": 10**12, "free": 5 * 10**11}})
        holds = [point for point in disks if path == point or path.startswith(point.rstrip("/") + "/")]
        return Disk(**disks[max(holds, key=len)]) if holds else None

    def write_probe(self, folder: str, size: int) -> int:
        name = self._get("write_errors", {}).get(folder)
        return int(getattr(errno, name)) if name else 0

    def is_dir(self, path: str) -> bool:
        return self.read_text(path) is None

    def exists(self, path: str) -> bool:
        return path not in self._get("absent", ())

    def try_bind(self, address: str, port: int) -> int:
        return errno.EADDRINUSE if port in self._get("bound", ()) else 0

    def free_port(self) -> int:
        return next(port for port in range(29501, 29600) if port not in self._get("bound", ()))

    def listeners(self, port: int) -> tuple[Listener, ...]:
        return tuple(
            Listener(
                listener["port"], listener.get("address", "0.0.0.0"), self.process(listener.get("pid", 0))
            )
            for listener in self._get("listeners", ())
            if listener["port"] == port
        )

    def process(self, pid: int) -> Process | None:
        return next((process for process in self.processes() if process.pid == pid), None)

    def processes(self) -> tuple[Process, ...]:
        return tuple(from_plain(Process, process) for process in self._get("processes", ()))

    def installed(self, distribution: str) -> str | None:
        version = self._get("installed", {"torch": "2.13.0"}).get(distribution)
        return None if version is None else str(version)

    def gpus(self) -> Gpus:
        recorded = self.recording.get("gpus")
        if not recorded:
            return Gpus(absent="this machine has no NVIDIA driver")
        devices = tuple(from_plain(Gpu, entry) for entry in recorded.get("devices", ()))
        version = recorded.get("cuda_driver_version")
        return Gpus(
            recorded.get("absent"),
            devices,
            str(recorded.get("driver", "")),
            tuple(version) if version else None,
            {(entry["a"], entry["b"]): entry["status"] for entry in recorded.get("peer_access", ())},
            frozenset(
                (entry["a"], entry["b"]) for entry in recorded.get("peer_access", ()) if entry.get("nvlink")
            ),
        )
