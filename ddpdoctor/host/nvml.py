"""The GPUs, by NVML: the driver's own library, which counts and names GPUs without initialising CUDA."""

import ctypes
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

NO_DRIVER = "this machine has no NVIDIA driver"

_LIBRARY = "libnvidia-ml.so.1"

_ABSENT = {
    "NVML_ERROR_LIBRARY_NOT_FOUND": NO_DRIVER,
    "NVML_ERROR_DRIVER_NOT_LOADED": "the NVIDIA driver is installed but not loaded",
    "NVML_ERROR_NO_PERMISSION": "this user may not use the NVIDIA driver",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": "the NVIDIA driver's library and kernel module differ in version, "
    "as after an update without a reboot",
}
"""Why NVML does not start, by the name of its error."""

_LOST = (
    "NVML_ERROR_GPU_IS_LOST",
    "NVML_ERROR_RESET_REQUIRED",
    "NVML_ERROR_INSUFFICIENT_POWER",
    "NVML_ERROR_IRQ_ISSUE",
    "NVML_ERROR_UNKNOWN",
)
"""Errors that mean that the GPU itself does not answer, and not that one fact is unsupported."""

_THROTTLE_REASONS = {
    0x04: "SwPowerCap",
    0x08: "HwSlowdown",
    0x20: "SwThermalSlowdown",
    0x40: "HwThermalSlowdown",
    0x80: "HwPowerBrakeSlowdown",
}
"""NVML's clock event reasons that slow a GPU down for heat or power. The bits are part of NVML's interface."""


@dataclass(frozen=True)
class Gpu:
    """One GPU as NVML shows it. Sizes in bytes; an absent fact is None."""

    index: int
    name: str = ""
    uuid: str = ""
    memory_total: int = 0
    memory_used: int = 0
    pids: tuple[int, ...] = ()
    ecc_uncorrected: int | None = None
    throttle_reasons: tuple[str, ...] = ()
    """NVML's clock event reasons that slow the GPU down for heat or power, by name."""
    pci_bus_id: str = ""
    mig_uuids: tuple[str, ...] = ()
    """The instances that the GPU is divided into where MIG is on."""
    lost: str | None = None
    """NVML's error where the GPU no longer answers."""


@dataclass(frozen=True)
class Gpus:
    """What NVML says; ``absent`` is the reason where there is no driver or no GPU."""

    absent: str | None = None
    devices: tuple[Gpu, ...] = ()
    driver: str = ""
    cuda_driver_version: tuple[int, int] | None = None
    peer_access: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """Pairs of indices, the lower first, to NVML's P2P status by name, ``OK`` where it works."""
    nvlink: frozenset[tuple[int, int]] = frozenset()
    """The pairs that NVLink joins."""


def read_gpus() -> Gpus:
    """What NVML says of this machine's GPUs. Never raises."""
    if not _driver_installed():
        return Gpus(absent=NO_DRIVER)
    try:
        import pynvml
    except ImportError:
        return Gpus(absent="the package nvidia-ml-py is not installed")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Gpus(absent=_why_absent(pynvml, error))
    try:
        return _read(_Nvml(pynvml))
    finally:
        _Nvml(pynvml).ask("nvmlShutdown")


def _driver_installed() -> bool:
    # Importing pynvml takes longer than everything else here, and most machines without a GPU need no more.
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError:
        return False
    return True


class _Nvml:
    """pynvml with errors as values: what a driver, a GPU or an older pynvml does not support is None."""

    def __init__(self, library: Any) -> None:
        self.library = library

    def ask(self, function: str, *arguments: Any) -> Any:
        call = getattr(self.library, function, None)
        try:
            return call(*arguments) if call else None
        except self.library.NVMLError:
            return None

    def ask_or_lost(self, function: str, *arguments: Any) -> tuple[Any, str | None]:
        """What a call returns, and NVML's error where it means that the GPU is lost."""
        try:
            return getattr(self.library, function)(*arguments), None
        except self.library.NVMLError as error:
            return None, str(error) if _is(self.library, error, _LOST) else None


def _is(library: Any, error: Any, names: tuple[str, ...]) -> bool:
    return error.value in [getattr(library, name, None) for name in names]


def _why_absent(library: Any, error: Any) -> str:
    known = (reason for name, reason in _ABSENT.items() if _is(library, error, (name,)))
    return next(known, f"the NVIDIA driver does not answer: {error}")


def _read(nvml: _Nvml) -> Gpus:
    handles, devices = {}, []
    for index in range(nvml.ask("nvmlDeviceGetCount") or 0):
        handle, lost = nvml.ask_or_lost("nvmlDeviceGetHandleByIndex", index)
        if handle is not None:
            handles[index] = handle
            devices.append(_gpu(nvml, index, handle))
        elif lost:
            devices.append(Gpu(index, lost=lost))
    peers = _peers(nvml, handles)
    return Gpus(
        absent=None if devices else "the NVIDIA driver shows no GPU to this user",
        devices=tuple(devices),
        driver=nvml.ask("nvmlSystemGetDriverVersion") or "",
        cuda_driver_version=_cuda_driver_version(nvml),
        peer_access={pair: status for pair, (status, _) in peers.items()},
        nvlink=frozenset(pair for pair, (_, linked) in peers.items() if linked),
    )


def _gpu(nvml: _Nvml, index: int, handle: Any) -> Gpu:
    memory, lost = nvml.ask_or_lost("nvmlDeviceGetMemoryInfo", handle)
    pci = nvml.ask("nvmlDeviceGetPciInfo", handle)
    reasons = (
        nvml.ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        or nvml.ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)  # its name before driver 535
        or 0
    )
    processes = nvml.ask("nvmlDeviceGetComputeRunningProcesses", handle) or ()
    return Gpu(
        index,
        name=nvml.ask("nvmlDeviceGetName", handle) or "",
        uuid=nvml.ask("nvmlDeviceGetUUID", handle) or "",
        memory_total=int(memory.total) if memory else 0,
        memory_used=int(memory.used) if memory else 0,
        pids=tuple(int(process.pid) for process in processes),
        ecc_uncorrected=_ecc_uncorrected(nvml, handle),
        throttle_reasons=tuple(name for bit, name in _THROTTLE_REASONS.items() if reasons & bit),
        pci_bus_id=pci.busId if pci else "",
        mig_uuids=tuple(_mig_uuids(nvml, handle)),
        lost=lost,
    )


def _ecc_uncorrected(nvml: _Nvml, handle: Any) -> int | None:
    uncorrected = getattr(nvml.library, "NVML_MEMORY_ERROR_TYPE_UNCORRECTED", 1)
    volatile = getattr(nvml.library, "NVML_VOLATILE_ECC", 0)
    count = nvml.ask("nvmlDeviceGetTotalEccErrors", handle, uncorrected, volatile)
    return None if count is None else int(count)


def _mig_uuids(nvml: _Nvml, handle: Any) -> Iterator[str]:
    if not (mode := nvml.ask("nvmlDeviceGetMigMode", handle)) or not mode[0]:
        return
    for index in range(nvml.ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
        instance = nvml.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
        uuid = None if instance is None else nvml.ask("nvmlDeviceGetUUID", instance)
        if uuid:
            yield uuid


def _cuda_driver_version(nvml: _Nvml) -> tuple[int, int] | None:
    # The second version asks libcuda as a program would find it, a forward compatibility package included.
    version = nvml.ask("nvmlSystemGetCudaDriverVersion_v2") or nvml.ask("nvmlSystemGetCudaDriverVersion")
    return (version // 1000, version % 1000 // 10) if version else None


def _peers(nvml: _Nvml, handles: dict[int, Any]) -> dict[tuple[int, int], tuple[str, bool]]:
    """For each pair its first P2P status that is not OK, of reading and writing, and whether NVLink joins it."""
    peers = {}
    for a, b in combinations(handles, 2):
        rights = ("READ", "WRITE", "NVLINK")
        read, write, nvlink = (_p2p_status(nvml, handles[a], handles[b], right) for right in rights)
        if known := [status for status in (read, write) if status]:
            peers[a, b] = next((status for status in known if status != "OK"), "OK"), nvlink == "OK"
    return peers


def _p2p_status(nvml: _Nvml, a: Any, b: Any, capability: str) -> str | None:
    """One of NVML's P2P statuses by name, ``OK`` where the capability is there."""
    index = getattr(nvml.library, f"NVML_P2P_CAPS_INDEX_{capability}")
    code = nvml.ask("nvmlDeviceGetP2PStatus", a, b, index)
    statuses = ((name, it) for name, it in vars(nvml.library).items() if name.startswith("NVML_P2P_STATUS_"))
    return next((name.removeprefix("NVML_P2P_STATUS_") for name, it in statuses if it == code), None)
