"""The control group: what it grants of CPUs and memory, from the files of cgroup v2 or v1."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from ddpdoctor.host.system import System

_UNLIMITED = 1 << 60
"""cgroup v1 writes "no limit" as the largest multiple of a page; no machine has this much memory."""


@dataclass(frozen=True)
class Cgroup:
    """Limits of the control group this process is in; None where there is no limit. Memory in bytes."""

    cpus: float | None = None
    memory_limit: int | None = None
    """Of this group and its ancestors, the limit that leaves the least room."""
    memory_used: int | None = None
    """What counts against ``memory_limit`` and cannot be reclaimed at once: without the idle page cache."""
    oom_kills: int = 0
    """Processes that the kernel killed because this group was at its limit."""

    @property
    def memory_free(self) -> int | None:
        """Bytes left below the limit; None where there is no limit."""
        return None if self.memory_limit is None else max(0, self.memory_limit - (self.memory_used or 0))

    def granted(self, allowed: int) -> float:
        """The CPUs that this group's quota leaves of those that the affinity mask allows."""
        return float(allowed) if self.cpus is None else min(float(allowed), self.cpus)


def read_cgroup(system: System) -> Cgroup:
    """The limits of this process's group, the tightest of the group and its ancestors."""
    quotas = [quota for folder in _lineage(system, "cpu") if (quota := _cpus(system, folder)) is not None]
    memory = [Cgroup(None, *it) for folder in _lineage(system, "memory") if (it := _memory(system, folder))]
    tightest = min(memory, key=lambda group: group.memory_free or 0, default=Cgroup())
    kills = next((_oom_kills(system, folder) for folder in _lineage(system, "memory")), 0)
    return Cgroup(min(quotas, default=None), tightest.memory_limit, tightest.memory_used, kills)


def _lineage(system: System, controller: str) -> Iterator[str]:
    """The folders of this process's group and of its ancestors that are visible here, the group first."""
    groups = dict(_groups(system))
    for root, point, kind in _mounts(system, controller):
        group = groups.get(controller if kind == "cgroup" else "")
        if group is None:
            continue
        folder = PurePosixPath(point) / _below(group, root)
        yield from (str(at) for at in (folder, *folder.parents) if at.is_relative_to(point))


def _groups(system: System) -> Iterator[tuple[str, str]]:
    """Controllers and the path of this process's group in their hierarchy; v2's has the empty name."""
    for line in (system.read_text("/proc/self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        yield from ((controller, path) for controller in controllers.split(","))


def _mounts(system: System, controller: str) -> Iterator[tuple[str, str, str]]:
    """Root, mount point and type of the hierarchies that may hold the controller."""
    for line in (system.read_text("/proc/self/mountinfo") or "").splitlines():
        place, _, origin = line.partition(" - ")
        fields, (kind, *more) = place.split(), origin.split() or [""]
        if len(fields) < 5 or (kind != "cgroup2" and not (kind == "cgroup" and more)):
            continue
        if kind == "cgroup2" or controller in more[-1].split(","):
            yield fields[3], fields[4], kind


def _below(group: str, root: str) -> PurePosixPath:
    """The group's path below the mount; a container sees its own group at the mount itself."""
    path = PurePosixPath(group)
    return path.relative_to(root) if path.is_relative_to(root) else PurePosixPath()


def _cpus(system: System, folder: str) -> float | None:
    if (text := system.read_text(f"{folder}/cpu.max")) is None:
        files = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        quota, period = (_number(system, f"{folder}/{name}") for name in files)
        return quota / period if quota is not None and quota > 0 and period else None
    fields = text.split()
    return int(fields[0]) / int(fields[1]) if len(fields) == 2 and fields[0] != "max" else None


def _memory(system: System, folder: str) -> tuple[int, int] | None:
    """Limit and use."""
    for limit_file, use_file, cache in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        if (limit := _number(system, f"{folder}/{limit_file}")) is not None and limit < _UNLIMITED:
            idle = _table(system, f"{folder}/memory.stat").get(cache, 0)
            return limit, max(0, (_number(system, f"{folder}/{use_file}") or 0) - idle)
    return None


def _oom_kills(system: System, folder: str) -> int:
    table = _table(system, f"{folder}/memory.events") or _table(system, f"{folder}/memory.oom_control")
    return table.get("oom_kill", 0)


def _number(system: System, path: str) -> int | None:
    text = (system.read_text(path) or "").strip()
    return int(text) if text.removeprefix("-").isdigit() else None


def _table(system: System, path: str) -> dict[str, int]:
    """A file of ``name number`` lines."""
    rows = (line.split() for line in (system.read_text(path) or "").splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}
