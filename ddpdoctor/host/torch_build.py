"""The installed torch, read from its files: importing it takes a second and more."""

import re
from dataclasses import dataclass

from ddpdoctor.host.system import System

_DEFINITION = re.compile(r"""^(__version__|cuda|hip|xpu)\b[^=\n]*=\s*['"]([^'"\n]+)['"]""", re.MULTILINE)
_SWITCHES = "include/caffe2/core/macros.h"
"""The header that lists how torch was built, a line ``{"USE_NCCL", "OFF"}`` for each switch."""
_SWITCHED_ON = re.compile(r"""\{\s*"USE_(GLOO|NCCL|MPI|UCC|XCCL)",\s*"(?:ON|1|TRUE)"\s*\}""")
_TARGETS = "share/cmake/Caffe2/Caffe2Targets.cmake"
_COMPILED_IN = re.compile(r"\bUSE_C10D_(GLOO|NCCL|MPI|UCC|XCCL)\b")


@dataclass(frozen=True)
class TorchBuild:
    """What torch is installed."""

    version: str
    cuda: str | None = None
    """The version of CUDA that it was built for; None for a CPU build."""
    backends: frozenset[str] = frozenset({"gloo"})
    """The backends of torch.distributed that are compiled in."""
    hip: str | None = None
    """The version of ROCm that it was built for."""


def read_torch_build(system: System) -> TorchBuild | None:
    """Read version and build without importing torch; None where there is no torch."""
    folder = system.package_folder("torch")
    text = (system.read_text(f"{folder}/version.py") or "") if folder else ""
    defined = dict(_DEFINITION.findall(text))
    version = defined.get("__version__") or system.installed("torch")
    if version is None:
        return None
    cuda, hip = defined.get("cuda"), defined.get("hip")
    backends = _backends(system, folder) if folder else frozenset[str]()
    usual = (
        {"gloo", "nccl"} if cuda or hip else {"gloo"}
    )  # of the published wheels, where headers do not tell
    return TorchBuild(version, cuda, backends or frozenset(usual), hip)


def _backends(system: System, folder: str) -> frozenset[str]:
    switches = _SWITCHED_ON.findall(system.read_text(f"{folder}/{_SWITCHES}") or "")
    targets = _COMPILED_IN.findall(system.read_text(f"{folder}/{_TARGETS}") or "")
    return frozenset(name.lower() for name in (*switches, *targets))
