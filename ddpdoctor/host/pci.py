"""What the kernel says of PCI devices: whether the IOMMU translates their memory accesses."""

from __future__ import annotations

import re

from ddpdoctor.host.system import System

_BUS_ID = re.compile(r"(?:[0-9a-f]*?)([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])", re.IGNORECASE)


def sysfs_name(bus_id: str) -> str:
    """A bus id as /sys/bus/pci/devices has it: NVML's ``00000000:3B:00.0`` is ``0000:3b:00.0``."""
    match = _BUS_ID.fullmatch(bus_id)
    return match.group(1).lower() if match else ""


def iommu_mode(system: System, bus_id: str) -> str | None:
    """The type of a device's IOMMU group: ``identity`` passes addresses through, ``DMA`` or ``DMA-FQ`` translates.

    None where the IOMMU is off, hidden from this machine, or the kernel does not say (before 5.11).
    """
    name = sysfs_name(bus_id)
    text = system.read_text(f"/sys/bus/pci/devices/{name}/iommu_group/type") if name else None
    return text.strip() if text else None
