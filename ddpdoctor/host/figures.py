"""This machine as a figure: what ranks share."""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.figures import Section, Table
from ddpdoctor.host import Host
from ddpdoctor.text import size

_MOST_INTERFACES = 12


def section(host: Host) -> Section:
    """The CPUs, memory, GPUs and interfaces of this host."""
    rows = tuple(_rows(host))
    return Section(
        "Machine", figures=(Table(f"This host, {host.hostname}", ("part", "what there is"), rows),)
    )


def _rows(host: Host) -> Iterator[tuple[str, str]]:
    there, allowed = host.system.cpus()
    granted = host.cgroup.granted(allowed)
    yield "CPUs", f"{granted:g} of {there} for {host.launch.nproc} ranks"
    if host.cgroup.memory_limit:
        yield "memory limit", size(host.cgroup.memory_limit)
    if host.shm:
        yield "/dev/shm", f"{size(host.shm.free)} free of {size(host.shm.total)}"
    for gpu in host.gpus.devices:
        memory = f", {size(gpu.memory_total)}" if gpu.memory_total else ""
        lost = f"does not answer: {gpu.lost}" if gpu.lost else ""
        yield f"GPU {gpu.index}", " ".join(filter(None, (f"{gpu.name}{memory}", lost)))
    for interface in host.interfaces[:_MOST_INTERFACES]:
        speed = f", {interface.speed_mbit / 1000:g} Gbit/s" if interface.speed_mbit > 0 else ""
        yield "interface", f"{interface}{speed}"
