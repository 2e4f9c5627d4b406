"""The GPUs, by NVML."""

from __future__ import annotations

from ddpdoctor.host.system import Gpus


def read_gpus() -> Gpus:
    """What NVML says of this machine's GPUs."""
    return Gpus(absent="this machine has no NVIDIA driver")
