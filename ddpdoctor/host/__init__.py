"""Facts of this machine, each read once, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from functools import cached_property

from ddpdoctor.host.cgroup import Cgroup, read_cgroup
from ddpdoctor.host.infiniband import IbPort, read_ports
from ddpdoctor.host.nvml import Gpus
from ddpdoctor.host.system import Disk, Interface, Process, System, loopback_down
from ddpdoctor.host.torch_build import TorchBuild, read_torch_build
from ddpdoctor.launch import Launch

__all__ = ["Host", "System"]


class Host:
    """What a host check sees: the launch, and each fact read from the system at most once."""

    def __init__(self, launch: Launch, system: System | None = None) -> None:
        self.launch = launch
        self.system = system or System()

    def with_launch(self, launch: Launch) -> Host:
        """The same host, whose facts already read stay read, for another launch."""
        other = copy(self)
        other.launch = launch
        return other

    @cached_property
    def environ(self) -> Mapping[str, str]:
        """The environment that ranks would inherit."""
        return dict(self.system.environ)

    @cached_property
    def hostname(self) -> str:
        return self.system.hostname()

    @cached_property
    def interfaces(self) -> tuple[Interface, ...]:
        return self.system.interfaces()

    @property
    def usable_interfaces(self) -> tuple[Interface, ...]:
        """Those that are up, have an address, and lead to other hosts."""
        return tuple(it for it in self.interfaces if it.up and it.addresses and not it.loopback)

    @cached_property
    def loopback_down(self) -> str | None:
        """The name of the loopback interface where it is down, as in a network namespace that nobody set up."""
        return loopback_down(self.interfaces)

    @cached_property
    def processes(self) -> tuple[Process, ...]:
        return self.system.processes()

    @cached_property
    def gpus(self) -> Gpus:
        return self.system.gpus()

    @cached_property
    def infiniband(self) -> tuple[IbPort, ...]:
        return read_ports(self.system)

    @cached_property
    def torch(self) -> TorchBuild | None:
        """The torch that is installed, read from its files without importing it; None where there is none."""
        return read_torch_build(self.system)

    @property
    def torch_version(self) -> str | None:
        return self.torch.version if self.torch else None

    @cached_property
    def cgroup(self) -> Cgroup:
        """What the control group grants: CPUs and memory."""
        return read_cgroup(self.system)

    @cached_property
    def shm(self) -> Disk | None:
        """/dev/shm; None where it is not mounted."""
        return self.system.disk("/dev/shm")
