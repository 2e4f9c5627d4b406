"""The ports of InfiniBand and RoCE adapters, as /sys/class/infiniband shows them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ddpdoctor.host.system import System

DEVICES = "/sys/class/infiniband"

_COUNTERS = (
    *("link_downed", "link_error_recovery", "local_link_integrity_errors", "port_rcv_errors", "symbol_error"),
)


@dataclass(frozen=True)
class IbPort:
    """One port of an adapter."""

    device: str
    number: int
    state: str = ""
    """The logical state, ``ACTIVE``, ``DOWN``, ``INIT`` or ``ARMED``; empty where the driver does not say."""
    physical: str = ""
    """The physical state, ``LinkUp``, ``Polling``, ``Disabled`` and others."""
    link_layer: str = ""
    """``InfiniBand`` or ``Ethernet``."""
    counters: Mapping[str, int] = field(default_factory=dict)
    """Error counters since the driver was loaded or the counters were cleared; absent ones are left out."""

    @property
    def name(self) -> str:
        """``mlx5_0 port 1``."""
        return f"{self.device} port {self.number}"

    @property
    def active(self) -> bool:
        return self.state == "ACTIVE"


def read_ports(system: System) -> tuple[IbPort, ...]:
    """Every port of every adapter; empty where there is no adapter."""
    return tuple(
        _port(system, device, number)
        for device in system.list_dir(DEVICES)
        for number in system.list_dir(f"{DEVICES}/{device}/ports")
    )


def _port(system: System, device: str, number: str) -> IbPort:
    folder = f"{DEVICES}/{device}/ports/{number}"

    def state(name: str) -> str:
        # The files read as "4: ACTIVE" and "5: LinkUp".
        return (system.read_text(f"{folder}/{name}") or "").rpartition(":")[2].strip()

    layer, counters = state("link_layer"), dict(_counters(system, folder))
    return IbPort(device, int(number), state("state"), state("phys_state"), layer, counters)


def _counters(system: System, folder: str) -> Iterator[tuple[str, int]]:
    for name in _COUNTERS:
        text = (system.read_text(f"{folder}/counters/{name}") or "").strip()
        if text.isdigit():
            yield name, int(text)
