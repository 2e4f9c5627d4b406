import re
from collections.abc import Sequence

from ddpdoctor.check import Check, Confidence, Finding, Findings, Judgement, Kind, Passed
from ddpdoctor.failures import Message
from ddpdoctor.host import Host
from ddpdoctor.host.gpus import iommu_mode, visible_gpus
from ddpdoctor.host.nccl_settings import is_on, nccl_setting
from ddpdoctor.host.nvml import Gpu
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, Reason, log_fields
from ddpdoctor.text import plural

Pair = tuple[int, int]

_NVLINK_NAMES = ("SXM", "HBM3", "H200", "B200", "B300")
"""Parts of the names of GPUs that have NVLink to all others of their board."""
_REASONS = {
    "GPU_NOT_SUPPORTED": "this model does not support it, like most GeForce cards",
    "CHIPSET_NOT_SUPPORTED": "the chipset does not allow it",
    "IOH_TOPOLOGY_NOT_SUPPORTED": "the GPUs are connected to different processors",
    "DISABLED_BY_REGKEY": "a driver setting disables it",
}
_FIX_BY_HOST_MEMORY = "NCCL_P2P_DISABLE=1 torchrun ...     # if this runs, peer access is the cause\n"
_COMPLETE = r"Init COMPLETE"
_CONNECTED = r"Connected all (?:rings|trees)"
_CONSUMER = r"GeForce|\bRTX (?:20|30|40|50)\d\d"
_TABLE_HEAD = r"#\s+(?:\(B\)|size)\s"
"""Of nccl-tests; rows of results follow it."""


class GpuPeerAccess(Check):
    """GPUs have no peer access, or have it through an IOMMU that may corrupt or block transfers.

    What it finds:
        Pairs of visible GPUs without peer access: information for consumer cards and for GPUs on different processors,
        where NCCL communicates through host memory; a warning for GPUs with NVLink. Pairs with peer access over PCI
        Express while the IOMMU translates their addresses: a warning.

    Why it matters:
        Without peer access all data goes through host memory, which is slower but correct. With peer access through a
        translating IOMMU (on bare metal, where CUDA does not support it), or through PCI bridges with access control
        (ACS), transfers hang or arrive corrupted without an error: losses become NaN, collectives hang.

    Example:
        A server with PCI Express GPUs whose IOMMU translates device addresses:
            $ cat /sys/bus/pci/devices/0000:41:00.0/iommu_group/type
            DMA-FQ

    Fix:
        Add iommu=pt to the kernel's command line, or turn the IOMMU off in the firmware; turn ACS off. Until then, use
        host memory:
            export NCCL_P2P_DISABLE=1
    """

    code = "DD706"
    title = "the GPUs have peer access"
    messages = (
        Message(
            r"peer mapping resources exhausted",
            headline="a GPU had no peer mapping left for one more GPU",
            why="A GPU can map the memory of at most eight others.",
            fix="use at most eight GPUs in one process, or one process for each GPU: torchrun --nproc-per-node N\n"
            "NCCL_P2P_DISABLE=1 works without peer access",
        ),
        Message(
            r"peer access (?:is )?not supported|cudaErrorPeerAccessUnsupported",
            headline="two GPUs of one host have no peer access, and a call needed it",
            why="The driver refuses it between these GPUs: they are consumer cards, are attached to different sockets, "
            "or a virtual machine, a container or ACS separates them.",
            fix="NCCL_P2P_DISABLE=1 torchrun ...     # NCCL communicates through host memory; so do its buffers with\n"
            "NCCL_CUMEM_HOST_ENABLE=0 torchrun ...     # NCCL 2.24 and later\n"
            "nvidia-smi topo -p2p r     # between which GPUs it is missing, and why",
        ),
        Message(
            r"(?P<said>transport/p2p\.cc:\d+ (?:\([^)]*\) )?NCCL WARN (?!.*(?:out of memory|calloc|malloc))"
            r".*(?:fail|error).{0,60}|(?:hip|cuda)Ipc\w+ failed.{0,60}"
            r"|transport\.cc:\d+ NCCL WARN Cuda failure (?:\d+ )?'invalid argument')",
            headline="GPUs of one host could not open each other's memory: {said}",
            why="NCCL (RCCL on AMD) connects GPUs of a host by peer access where driver and topology support it. The "
            "driver then refused: an IOMMU, a virtual machine, GPUs that are not visible in each other's container, or "
            "a driver that does not match this kernel.",
            fix=f"{_FIX_BY_HOST_MEMORY}nvidia-smi topo -p2p r; one container for all GPUs of a host; iommu=pt on the "
            "kernel's command line",
            likely=True,
        ),
        # A model without parameters is refused before ranks compare their counts.
        Message(
            r"DDP expects same model across all ranks.{0,80}inconsistent 0 params",
            headline="a rank got a parameter count of 0 from another rank: the transfer between their GPUs lost the "
            "data",
            why="DistributedDataParallel gathers every rank's count of parameters first, and none is 0. What one GPU "
            "wrote did not arrive at the other: an IOMMU or Access Control Services redirect transfers by peer access, "
            "or the network between the hosts loses them.",
            fix=f"{_FIX_BY_HOST_MEMORY}NCCL_IB_DISABLE=1 torchrun ...     # between hosts: if this runs, it is "
            "InfiniBand or RoCE",
            likely=True,
        ),
    )
    log_words = (
        "peer mapping resources",
        "peer access",
        "NCCL WARN",
        "Ipc",
        "GeForce",
        "RTX",
        "Init COMPLETE",
        "Connected all",
    )

    def examine_host(self, host: Host) -> Findings:
        gpus = {gpu.index: gpu for gpu in visible_gpus(host)}
        pairs = {pair: status for pair, status in host.gpus.peer_access.items() if gpus.keys() >= set(pair)}
        reason = _why_not(host, len(gpus), bool(pairs))
        self.require(not reason, reason or "")
        closed = {pair: status for pair, status in pairs.items() if status != "OK"}
        over_pci = sorted({it for pair in pairs.keys() - closed.keys() - host.gpus.nvlink for it in pair})
        modes = {index: iommu_mode(host.system, gpus[index].pci_bus_id) for index in over_pci}
        translated = {index: mode for index, mode in modes.items() if mode and mode.startswith("DMA")}
        how = "PCI Express" if over_pci else "NVLink"
        if closed:
            yield self._no_access(closed, list(gpus.values()))
        if translated:
            yield self.warn(
                f"the IOMMU translates the addresses of GPU {next(iter(translated))}, which has peer access over PCI "
                "Express",
                evidence=[
                    f"GPU {index} ({gpus[index].pci_bus_id}): iommu_group/type is {mode}"
                    for index, mode in translated.items()
                ],
                confidence=Confidence.LIKELY,
                about=Kind.GPU.of(*translated),
            )
        yield Passed(f"{plural(len(gpus), 'GPU')} reach each other's memory over {how}")

    def examine_log(self, log: Log) -> Judgement:
        if (said := log.by_messages(self)) is not NOT_IN_OUTPUT:
            return said
        reason = log.search(_COMPLETE, _CONNECTED) if _is_silent_after_start(log) else None
        return self._hung(log, reason) if reason else NOT_IN_OUTPUT

    def _hung(self, log: Log, reason: Reason) -> Finding:
        why = "Access Control Services or an IOMMU redirect transfers between GPUs, and they are lost."
        fix = "turn ACS off on the PCIe bridges or in the BIOS (lspci -vvv | grep ACSCtl)\n"
        fix += "iommu=pt or off on the kernel's command line"
        if log.find(_CONSUMER):
            why = "Some drivers report peer access for consumer GPUs although it does not work."
            fix = "or a newer driver, which no longer reports it"
        return self.fail(
            "the GPUs were connected by peer access, and the first collective did not end",
            why=f"{why} NCCL starts, and its first kernel waits for data that does not arrive.",
            fix=f"{_FIX_BY_HOST_MEMORY}{fix}",
            confidence=Confidence.LIKELY,
            **log_fields(reason),
        )

    def _no_access(self, closed: dict[Pair, str], gpus: Sequence[Gpu]) -> Finding:
        has_nvlink = any(part in gpu.name for gpu in gpus for part in _NVLINK_NAMES)
        report = self.warn if has_nvlink else self.info
        (a, b), status = next(iter(closed.items()))
        by_status: dict[str, list[str]] = {}
        for (first, second), why in closed.items():
            by_status.setdefault(why, []).append(f"{first}-{second}")
        return report(
            f"GPUs {a} and {b} cannot read each other's memory"
            + (f", nor can {plural(len(closed) - 1, 'other pair')}" if len(closed) > 1 else ""),
            why="NCCL communicates through host memory between them, which is slower but correct. The driver's reason "
            f"is {status}: {_REASONS.get(status, 'without an explanation')}.",
            fix="nvidia-smi topo -p2p r     # the whole table; for NVLink: nvidia-smi nvlink --status",
            evidence=[f"{why}: GPUs {', '.join(pairs)}" for why, pairs in by_status.items()],
            about=Kind.GPU.of(*(f"{a}-{b}" for a, b in closed)),
        )


def _is_silent_after_start(log: Log) -> bool:
    """Whether every link is GPU to GPU, all are connected, and the output ends where results should follow."""
    links = [link for facts in log.nccl.values() for link in facts.links]
    if not links or log.training or not all(link.via.startswith("P2P") for link in links):
        return False
    failed = any(log.fatal) or any(end.code for end in log.ended)
    in_table = log.last is not None and bool(re.match(_TABLE_HEAD, log.last.text))
    return not failed and bool(log.hung or log.waits or (in_table and log.find(_CONSUMER)))


def _why_not(host: Host, visible: int, known: bool) -> str | None:
    if host.gpus.absent:
        return host.gpus.absent
    if host.launch.backend != "nccl":
        return f"the backend is {host.launch.backend}, which communicates through host memory"
    if min(visible, host.launch.nproc) < 2:
        return f"{plural(visible, 'GPU')} visible, {plural(host.launch.nproc, 'rank')} on this node"
    if not known:
        return "the driver does not report it"
    if is_on(nccl_setting(host, "NCCL_P2P_DISABLE")):
        return "NCCL_P2P_DISABLE is set, NCCL communicates through host memory"
    return None
