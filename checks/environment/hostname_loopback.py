import ipaddress
import re

from ddpdoctor.check import Check, Confidence, Evidence, Judgement, Passed
from ddpdoctor.host import Host
from ddpdoctor.logs.log import Log, Raised, Reason, log_fields
from ddpdoctor.logs.secondary_errors import is_of_another_service
from ddpdoctor.text import quote

_UNRESOLVED = (
    r"(?i)(?:of \((?P<name>[^\s,)]+), \d+\) cannot be retrieved.{0,40})?"
    r"(?:gai error|Name or service not known"
    r"|Temporary failure in name resolution|nodename nor servname)"
)
_NAMELESS = r"hostname of the client socket cannot be retrieved"
_UNREACHED = (
    r"failed to connect to any network address of|while trying to connect to \("
    r"|connection to the C10d store has failed"
)
"""As torch ends its attempts."""
_MANY = 5
"""Failed lookups; a name without an IPv6 address has one or two at each connection."""
_CONNECTS_TO_ITSELF = (
    r"(?:timed out after .{1,40} while trying to connect to|failed to connect to any network address of) "
    r"\((?:(?P<address>127\.(?!0\.0\.1,)[\d.]+|0\.(?!0\.0\.0)[\d.]+),"
    r"|(?P<loopback>127\.0\.0\.1|localhost|::1), (?:3[3-9]|[4-6]\d)\d{3}\))"
)
"""The port shows whether 127.0.0.1 is intended: only a rendezvous chooses an ephemeral port."""
_WEB = re.compile(r"https?://|HTTPS?Connection|urlopen|[Mm]ax retries exceeded")


class HostnameLoopback(Check):
    """This hostname does not resolve to an address that the other ranks can reach.

    What it finds:
        The hostname does not resolve, resolves to a loopback address only (many distributions write
        `127.0.1.1 name` into /etc/hosts), or consists of digits and is read as an IPv4 address. On one node a
        loopback address is correct.

    Why it matters:
        gloo binds to the address of the hostname and sends it to the other nodes; if that is 127.0.1.1, they connect
        to themselves and init_process_group fails. torchrun's c10d rendezvous, also with --standalone, gives the
        ranks the hostname of node 0 as MASTER_ADDR: if it does not resolve, they fail after a minute.

    Example:
        /etc/hosts on two nodes:
            127.0.0.1  localhost
            127.0.1.1  node1                         # gloo on node1 listens where node2 cannot go

    Fix:
        Map the hostname to the address of the network interface:
            echo "10.0.0.1 node1" >> /etc/hosts
        or give the interface to gloo and the address to torchrun:
            export GLOO_SOCKET_IFNAME=eth0
            torchrun --local-addr 10.0.0.1 ...     # on one node: --local-addr 127.0.0.1 --standalone
        On every node, getent hosts NAME has to print that address; torchrun --master-addr 10.0.0.1 needs no hostname.
    """

    code = "DD003"
    title = "the hostname resolves to its address"
    breaks_group = True
    log_words = ("trying to connect to", "failed to connect to", "cannot be retrieved", "name resolution")

    def examine_host(self, host: Host) -> Judgement:
        addresses = host.system.resolve(host.hostname)
        report = self.warn if _named_interface(host) else self.fail
        if not addresses or host.hostname.isdigit():
            problem = "is read as an IPv4 address" if host.hostname.isdigit() else "does not resolve"
            report = self.info if host.launch.nnodes == 1 else report
            return report(f"hostname {quote(host.hostname)} {problem}", evidence=_interfaces(host))
        if host.launch.nnodes > 1 and all(_is_loopback(address) for address in addresses):
            return report(
                f"hostname {quote(host.hostname)} resolves to {', '.join(addresses)} only, a loopback address",
                evidence=_interfaces(host),
            )
        return Passed(f"hostname {quote(host.hostname)} resolves to {', '.join(addresses)}")

    def examine_log(self, log: Log) -> Judgement:
        reason = log.search(_UNRESOLVED)
        if reason and not _is_of_the_web(reason) and (log.failed or _ends_in_lookups(log, _UNRESOLVED)):
            name = reason.match["name"]
            return self.fail(
                f"hostname {quote(name)} did not resolve" if name else "a hostname did not resolve",
                **log_fields(reason.confirmed_by(log.search(_UNREACHED))),
            )
        if _ends_in_lookups(log, _NAMELESS):
            return self.warn(
                "addresses of ranks have no hostname, and each lookup is slow",
                why="torch looks up the hostname of each address that connects to the store, for its messages. Where "
                "the resolver does not answer, that costs 10 s for each connection.",
                fix="getent hosts ADDRESS     # on node 0, for an address of each node\n"
                "add the nodes to /etc/hosts, or give /etc/resolv.conf a nameserver that answers",
                **log_fields(*log.find(_NAMELESS)[:1]),
            )
        reason = log.reason(_CONNECTS_TO_ITSELF)
        address = reason.match["address"] or reason.match["loopback"]
        what, confidence = "its own node", Confidence.LIKELY
        why = "The hostname of rank 0's node resolves to a loopback address on this rank's node, so the rank connects "
        why += "to its own node, where no store listens."
        if address.startswith("0."):
            what, confidence = "a hostname read as a number", Confidence.CERTAIN
            why = "A hostname that consists of digits is read as an address."
        return self.fail(
            f"a rank waited for the store at {address}, which is {what}",
            why=why,
            fix="give the address of rank 0's node: torchrun --master-addr 10.0.0.1 ...\nor map every hostname to its "
            "address in /etc/hosts on all nodes, without a 127.0.x.x entry: getent hosts $(hostname)",
            confidence=confidence,
            **log_fields(reason),
        )


def _is_of_the_web(reason: Reason) -> bool:
    """Whether the name is that of a server, and not of a rank's host."""
    raised = (source for source in reason.sources if isinstance(source, Raised))
    return bool(_WEB.search(reason.match.string)) or any(map(is_of_another_service, raised))


def _ends_in_lookups(log: Log, pattern: str) -> bool:
    """Whether the output ends in repeated lookups."""
    lookups = log.find(pattern)
    return len(lookups) >= _MANY and log.last is not None and lookups[-1].position == log.last.position


def _named_interface(host: Host) -> bool:
    """Whether the group finds its interface without the hostname, which NCCL never uses."""
    return bool(host.environ.get("GLOO_SOCKET_IFNAME")) or host.launch.backend == "nccl"


def _interfaces(host: Host) -> tuple[Evidence, ...]:
    return tuple(Evidence(f"{it.name} has {', '.join(it.addresses)}") for it in host.usable_interfaces)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
