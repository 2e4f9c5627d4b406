import ipaddress

from ddpdoctor.check import Check
from ddpdoctor.host import Host
from ddpdoctor.model import Evidence, Family, Finding, Judgement, Passed
from ddpdoctor.redact import quote


class HostnameLoopback(Check):
    """This host's name does not lead to an address that the other ranks can reach.

    What it finds:
        The host's own name does not resolve, resolves to a loopback address only (many distributions write
        `127.0.1.1 name` into /etc/hosts), or consists of digits and is read as an IPv4 address. On one node a
        loopback address is right.

    Why it matters:
        gloo binds to the address of the host's name and tells it to the other nodes; where that is 127.0.1.1, they
        connect to themselves and the group ends with a connection error. torchrun's c10d rendezvous,
        --standalone included, gives the ranks the name of node 0 as MASTER_ADDR: a name that does not
        resolve keeps them waiting for a minute, and then they fail.

    Example:
        /etc/hosts on two nodes:
            127.0.0.1  localhost
            127.0.1.1  node1                         # gloo on node1 listens where node2 cannot go

    Fix:
        Give the name the address of the network interface:
            echo "10.0.0.1 node1" >> /etc/hosts
        or name the interface (gloo) and the address (torchrun):
            export GLOO_SOCKET_IFNAME=eth0
            torchrun --local-addr 10.0.0.1 ...
    """

    code = "DD003"
    name = "hostname-loopback"
    family = Family.ENVIRONMENT
    title = "the host's name leads to its address"
    breaks_group = True

    def examine_host(self, host: Host) -> Judgement:
        addresses = host.system.resolve(host.hostname)
        if not addresses or host.hostname.isdigit():
            return [self._unresolved(host)]
        if host.plan.nnodes > 1 and all(_is_loopback(address) for address in addresses):
            return [self._loopback(host, addresses)]
        return Passed(f"host name {quote(host.hostname)} resolves to {', '.join(addresses)}")

    def _unresolved(self, host: Host) -> Finding:
        shown = quote(host.hostname)
        digits = host.hostname.isdigit()
        headline = f"host name {shown} " + ("is read as an IPv4 address" if digits else "does not resolve")
        why = (
            "torchrun's c10d rendezvous (--standalone included) gives the ranks this name as MASTER_ADDR: they wait "
            "for a minute and fail."
        )
        fix = f"echo '{_own_address(host)} NAME' >> /etc/hosts, with the name that `hostname` prints"
        if host.plan.nnodes == 1:
            return self.info(
                headline,
                why=f"{why} With a fixed --master-addr the name is not used on one node.",
                fix=f"{fix}; or torchrun --local-addr 127.0.0.1 --standalone ...",
            )
        report = self.warn if _named_interface(host) else self.fail
        return report(
            headline,
            why=f"{why} gloo falls back to the loopback address unless GLOO_SOCKET_IFNAME names an interface, and "
            "then no other node reaches it.",
            fix=f"{fix}; or torchrun --local-addr {_own_address(host)} ... and export GLOO_SOCKET_IFNAME",
            evidence=_interfaces(host),
        )

    def _loopback(self, host: Host, addresses: tuple[str, ...]) -> Finding:
        report = self.warn if _named_interface(host) else self.fail
        return report(
            f"host name {quote(host.hostname)} resolves to {', '.join(addresses)} only, a loopback address",
            why="The other nodes cannot connect to a loopback address. gloo binds to the address of the host's name "
            "unless GLOO_SOCKET_IFNAME names an interface, and torchrun's c10d rendezvous gives every node the "
            "name of node 0.",
            fix=f"in /etc/hosts, give the name the address {_own_address(host)}; or export GLOO_SOCKET_IFNAME and "
            f"torchrun --local-addr {_own_address(host)} ...",
            evidence=_interfaces(host),
        )


def _named_interface(host: Host) -> bool:
    """Whether the group finds its interface without the host's name; NCCL never asks for it."""
    return bool(host.environ.get("GLOO_SOCKET_IFNAME")) or host.plan.backend == "nccl"


def _own_address(host: Host) -> str:
    addresses = (
        address for one in host.interfaces if one.up and not one.loopback for address in one.addresses
    )
    return next((address for address in addresses if ":" not in address), "127.0.0.1")


def _interfaces(host: Host) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(f"{one.name} has {', '.join(one.addresses)}")
        for one in host.interfaces
        if one.up and one.addresses and not one.loopback
    )


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
