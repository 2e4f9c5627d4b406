"""The installed torch, read from its files."""

from __future__ import annotations

from dataclasses import dataclass

from ddpdoctor.host.system import System


@dataclass(frozen=True)
class TorchBuild:
    """What torch is installed."""

    version: str
    cuda: str | None = None
    backends: frozenset[str] = frozenset({"gloo"})


def read_torch_build(system: System) -> TorchBuild | None:
    """Read version and build without importing torch."""
    version = system.installed("torch")
    return TorchBuild(version) if version else None
