"""What the command on one host tells those on the others of it: plain data."""

import platform
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ddpdoctor import __version__
from ddpdoctor.files import checksum
from ddpdoctor.host import Host
from ddpdoctor.host.gpus import visible_gpus
from ddpdoctor.secret import is_secret

_COMPARED = ("NCCL_", "GLOO_", "TORCH_NCCL_", "TORCH_DISTRIBUTED_", "UCX_", "FI_")
"""How the names of variables begin that ranks have to share."""


@dataclass(frozen=True)
class NodeFacts:
    """One host of the job."""

    node_rank: int
    """:data:`~ddpdoctor.launch.UNNUMBERED` until node 0 gives it one."""
    host: str
    nproc: int = 1
    version: str = __version__
    """Of ddpdoctor."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of torch and Python; what is not installed is not there."""
    gpus: int = 0
    numa_nodes: int = 0
    """0 where the kernel does not tell."""
    time: float = 0.0
    """Seconds since the epoch when the other host heard of it, by this host's clock."""
    skew: float = 0.0
    """Seconds by which its clock is ahead of that of the host of rank 0."""
    address: str = ""
    """By which the other hosts reach its ranks."""
    port: int = 0
    """On which it listens for the others' trial."""
    interfaces: Mapping[str, str] = field(default_factory=dict)
    """The interface of each of its addresses that lead to other hosts."""
    mtus: Mapping[str, int] = field(default_factory=dict)
    """The largest packet of each of these interfaces, in bytes."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Settings of NCCL, gloo and torch in its environment, without secrets."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Checksums of the script and of the files that it is given, by path."""

    @property
    def interface(self) -> str:
        """That has :attr:`address`; empty where none has."""
        return self.interfaces.get(self.address, "")

    @property
    def mtu(self) -> int:
        """Of :attr:`interface`; 0 where it is not known."""
        return self.mtus.get(self.interface, 0)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Its ranks, where every host has as many."""
        return tuple(range(self.node_rank * self.nproc, (self.node_rank + 1) * self.nproc))


def facts_of(host: Host, words: Iterable[str] = ()) -> NodeFacts:
    """What this host tells, with the checksums of those words of the job's command line that are files."""
    usable = host.usable_interfaces
    nodes = (name for name in host.system.list_dir("/sys/devices/system/node") if name.startswith("node"))
    versions = {"torch": host.torch_version, "Python": platform.python_version()}
    return NodeFacts(
        node_rank=host.launch.node_rank,
        host=host.hostname,
        nproc=host.launch.nproc,
        versions={name: version for name, version in versions.items() if version},
        gpus=len(visible_gpus(host)),
        numa_nodes=sum(name.removeprefix("node").isdecimal() for name in nodes),
        time=time.time(),
        address=data_address(host),
        interfaces={address: known.name for known in usable for address in known.addresses},
        mtus={known.name: mtu for known in usable if (mtu := _mtu(host, known.name))},
        variables={
            name: value
            for name, value in sorted(host.environ.items())
            if name.startswith(_COMPARED) and not is_secret(name, value)
        },
        files={word: digest for word in words if (digest := checksum(Path(word)))},
    )


def data_address(host: Host) -> str:
    """The address that gloo gives to the other ranks: of the interface that is named, or of the hostname."""
    wanted = host.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    for interface in host.interfaces:
        if interface.name == wanted and interface.addresses:
            return interface.addresses[0]
    resolved = host.system.resolve(host.hostname)
    here = [address for interface in host.usable_interfaces for address in interface.addresses]
    return next((address for address in resolved if address in here), "")


def _mtu(host: Host, interface: str) -> int:
    text = host.system.read_text(f"/sys/class/net/{interface}/mtu")
    return int(text) if text and text.strip().isdigit() else 0
