"""Which GPUs the ranks would see, the defaults that follow from it, and what the kernel says of their PCI devices."""

import re
from dataclasses import dataclass

from ddpdoctor.host import Host
from ddpdoctor.host.nvml import Gpu, Gpus
from ddpdoctor.host.system import System
from ddpdoctor.redact import quote
from ddpdoctor.text import fold_ranks

VARIABLE = "CUDA_VISIBLE_DEVICES"
DEFAULT_NPROC = 2
"""Ranks where no GPU says how many: the fewest that make a group."""

_HIDES_ALL = ("", "-1", "nodevfiles", "none", "void")
"""Values by which people and schedulers (Slurm: NoDevFiles) hide every GPU on purpose."""

_BUS_ID = re.compile(r"(?:[0-9a-f]*?)([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])", re.IGNORECASE)


@dataclass(frozen=True)
class Visibility:
    """The GPUs that CUDA would show, in its order, and what is wrong with the variable, as a clause after it."""

    gpus: tuple[Gpu, ...]
    problem: str | None = None


def visible_gpus(host: Host) -> list[Gpu]:
    """The GPUs that a rank would see as cuda:0, cuda:1 and so on, without those that are lost.

    Of GPUs that MIG divides into instances, CUDA shows one instance, and none beside whole GPUs; it counts as
    the GPU that it is a part of. CUDA may order GPUs of different models by speed, NVML orders them by bus; the
    number is the same.
    """
    answering = [gpu for gpu in visibility(host).gpus if gpu.lost is None]
    return [gpu for gpu in answering if not gpu.mig_uuids] or answering[:1]


def visibility(host: Host) -> Visibility:
    """How CUDA would read CUDA_VISIBLE_DEVICES: up to the first entry that it cannot use."""
    if (value := host.environ.get(VARIABLE)) is None or not host.gpus.devices:
        return Visibility(host.gpus.devices)
    entries = [entry.strip() for entry in value.split(",")]
    if entries[0].lower() in _HIDES_ALL:
        return Visibility(())
    by_name = entries[0].startswith(("GPU-", "MIG-"))
    chosen: list[Gpu] = []
    for position, entry in enumerate(entries):
        gpu, problem = _find(host.gpus, entry, by_name)
        if gpu is not None and (entry in entries[:position] or (gpu in chosen and not by_name)):
            return Visibility((), f"names {quote(entry)} twice")
        if not entry and any(entries[position:]):
            problem = "has an empty entry in its middle"
        if gpu is not None:
            chosen.append(gpu)
        if gpu is None or problem:
            return Visibility(tuple(chosen), problem)
    return Visibility(tuple(chosen))


def _find(gpus: Gpus, entry: str, by_name: bool) -> tuple[Gpu | None, str | None]:
    """The GPU that an entry means, and what is wrong with the entry."""
    if not entry or entry == "-1":
        return None, None
    if by_name:
        gpu = _by_uuid(gpus, entry)
        return gpu, None if gpu else f"names {quote(entry)}, which is not a GPU of this machine"
    if (digits := re.match(r"\+?(\d+)", entry)) is None:
        return None, f"has the entry {quote(entry)}, which is not a number"
    index = int(digits.group(1))
    gpu = next((gpu for gpu in gpus.devices if gpu.index == index), None)
    if gpu is None:
        known = fold_ranks(gpu.index for gpu in gpus.devices)
        return None, f"names GPU {index}, and this machine has {known}"
    if digits.end() != len(entry):
        return gpu, f"has the entry {quote(entry)}, which is read as {index}"
    return gpu, None


def _by_uuid(gpus: Gpus, entry: str) -> Gpu | None:
    """The GPU with this identifier, or the beginning of one, or the one that has this MIG instance."""
    parent = entry.removeprefix("MIG-").partition("/")[0] if entry.startswith("MIG-GPU-") else entry
    known = ((gpu, uuid) for gpu in gpus.devices for uuid in (gpu.uuid, *gpu.mig_uuids))
    return next((gpu for gpu, uuid in known if uuid.startswith(parent)), None)


def default_nproc(host: Host) -> int:
    """One rank for each visible GPU; two where there is none."""
    return len(visible_gpus(host)) or DEFAULT_NPROC


def default_backend(host: Host, nproc: int) -> str:
    """``nccl`` where this torch has it and every rank gets a GPU of its own, else ``gloo``."""
    has_nccl = host.torch is not None and "nccl" in host.torch.backends
    return "nccl" if has_nccl and len(visible_gpus(host)) >= nproc else "gloo"


def sysfs_name(bus_id: str) -> str:
    """A bus id as /sys/bus/pci/devices has it: NVML's ``00000000:3B:00.0`` is ``0000:3b:00.0``."""
    match = _BUS_ID.fullmatch(bus_id)
    return match.group(1).lower() if match else ""


def iommu_mode(system: System, bus_id: str) -> str | None:
    """The type of a device's IOMMU group: ``identity`` passes addresses through, ``DMA`` or ``DMA-FQ`` translates. None
    where the IOMMU is off, hidden from this machine, or the kernel does not say (before 5.11)."""
    name = sysfs_name(bus_id)
    text = system.read_text(f"/sys/bus/pci/devices/{name}/iommu_group/type") if name else None
    return text.strip() if text else None
