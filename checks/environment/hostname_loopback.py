import ipaddress
import re

from ddpdoctor.check import Check
from ddpdoctor.host import Host
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, Raised, Reason, log_fields
from ddpdoctor.logs.secondary_errors import is_of_another_service
from ddpdoctor.model import Confidence, Evidence, Finding, Judgement, Passed
from ddpdoctor.redact import quote

_UNRESOLVED = (
    r"(?i)(?:of \((?P<name>[^\s,)]+), \d+\) cannot be retrieved.{0,40})?"
    r"(?:gai error|hostname of the client socket cannot be retrieved|Name or service not known"
    r"|Temporary failure in name resolution|nodename nor servname)"
)
_MANY = 5
"""Answers of this kind; a name without an address of IPv6 has one or two at each connection."""
_DIALS_ITSELF = (
    r"(?:timed out after .{1,40} while trying to connect to|failed to connect to any network address of) "
    r"\((?:(?P<address>127\.(?!0\.0\.1,)[\d.]+|0\.(?!0\.0\.0)[\d.]+),"
    r"|(?P<own>127\.0\.0\.1|localhost|::1), (?:3[3-9]|[4-6]\d)\d{3}\))"
)
"""The port tells 127.0.0.1 on purpose from a name that led there: only a rendezvous takes an ephemeral one."""
_WEB = re.compile(r"https?://|HTTPS?Connection|urlopen|[Mm]ax retries exceeded")


class HostnameLoopback(Check):
    """This host's name does not resolve to an address that the other ranks can reach.

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
    title = "the hostname resolves to its address"
    breaks_group = True
    log_words = ("trying to connect to", "failed to connect to", "cannot be retrieved", "name resolution")

    def examine_host(self, host: Host) -> Judgement:
        addresses = host.system.resolve(host.hostname)
        if not addresses or host.hostname.isdigit():
            return self._unresolved(host)
        if host.launch.nnodes > 1 and all(_is_loopback(address) for address in addresses):
            report = self.warn if _named_interface(host) else self.fail
            return report(
                f"host name {quote(host.hostname)} resolves to {', '.join(addresses)} only, a loopback address",
                why="The other nodes cannot connect to a loopback address. gloo binds to the address of the "
                "host's name unless GLOO_SOCKET_IFNAME names an interface, and torchrun's c10d rendezvous "
                "gives every node the name of node 0.",
                fix=f"in /etc/hosts, give the name the address {_own_address(host)}; or export "
                f"GLOO_SOCKET_IFNAME and torchrun --local-addr {_own_address(host)} ...",
                evidence=_interfaces(host),
            )
        return Passed(f"host name {quote(host.hostname)} resolves to {', '.join(addresses)}")

    def examine_log(self, log: Log) -> Judgement:
        reason = log.search(_UNRESOLVED)
        if reason and not _is_of_the_web(reason) and (log.failed or _asks_to_the_end(log)):
            name = reason.match["name"]
            return self.fail(
                f"the name {quote(name)} did not resolve to an address"
                if name
                else "a host's name did not resolve",
                why="Ranks find rank 0's store by this name. A node whose resolver and /etc/hosts do not "
                "know it looks again and again, until the rendezvous times out.",
                fix=f"on every node: getent hosts {quote(name or 'NAME')}\nadd the name with the node's own "
                "address to /etc/hosts, or give an address: torchrun --master-addr 10.0.0.1 ...",
                **log_fields(reason),
            )
        reason = log.search(_DIALS_ITSELF)
        return self._told_loopback(reason) if reason else NOT_IN_OUTPUT

    def _told_loopback(self, reason: Reason) -> Finding:
        address = reason.match["address"] or reason.match["own"]
        number = address.startswith("0.")
        return self.fail(
            f"a rank waited for the store at {address}, "
            + ("which is a host's name read as a number" if number else "which is its own node"),
            why="A name of digits only is taken for an address."
            if number
            else "The name of the node of rank 0 leads to a loopback address where this rank runs, so it "
            "dials its own node, where no store listens.",
            fix="give rank 0's address by number: torchrun --master-addr 10.0.0.1 ...\nor map every node's "
            "name to its "
            "address in /etc/hosts on all nodes, with no 127.0.x.x entry for it: getent hosts $(hostname)",
            confidence=Confidence.CERTAIN if number else Confidence.LIKELY,
            **log_fields(reason),
        )

    def _unresolved(self, host: Host) -> Finding:
        shown = quote(host.hostname)
        digits = host.hostname.isdigit()
        headline = f"host name {shown} " + ("is read as an IPv4 address" if digits else "does not resolve")
        why = (
            "torchrun's c10d rendezvous (--standalone included) gives the ranks this name as MASTER_ADDR: "
            "they wait for a minute and fail."
        )
        fix = f"echo '{_own_address(host)} NAME' >> /etc/hosts, with the name that `hostname` prints"
        if host.launch.nnodes == 1:
            return self.info(
                headline,
                why=f"{why} With a fixed --master-addr the name is not used on one node.",
                fix=f"{fix}; or torchrun --local-addr 127.0.0.1 --standalone ...",
            )
        report = self.warn if _named_interface(host) else self.fail
        return report(
            headline,
            why=f"{why} gloo falls back to the loopback address unless GLOO_SOCKET_IFNAME names an "
            "interface, and then no other node reaches it.",
            fix=f"{fix}; or torchrun --local-addr {_own_address(host)} ... and export GLOO_SOCKET_IFNAME",
            evidence=_interfaces(host),
        )


def _is_of_the_web(reason: Reason) -> bool:
    """Whether the name is that of a server somewhere, and of no rank."""
    raised = (source for source in reason.sources if isinstance(source, Raised))
    return bool(_WEB.search(reason.match.string)) or any(map(is_of_another_service, raised))


def _asks_to_the_end(log: Log) -> bool:
    """Whether the output ends while a name is asked for again and again."""
    asked = log.find(_UNRESOLVED)
    return len(asked) >= _MANY and log.last is not None and asked[-1].position == log.last.position


def _named_interface(host: Host) -> bool:
    """Whether the group finds its interface without the host's name; NCCL never asks for it."""
    return bool(host.environ.get("GLOO_SOCKET_IFNAME")) or host.launch.backend == "nccl"


def _own_address(host: Host) -> str:
    addresses = (
        address
        for interface in host.interfaces
        if interface.up and not interface.loopback
        for address in interface.addresses
    )
    return next((address for address in addresses if ":" not in address), "127.0.0.1")


def _interfaces(host: Host) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(f"{interface.name} has {', '.join(interface.addresses)}")
        for interface in host.interfaces
        if interface.up and interface.addresses and not interface.loopback
    )


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
