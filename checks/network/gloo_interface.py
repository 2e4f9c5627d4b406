from collections.abc import Iterator
from typing import Any

from ddpdoctor.check import Check
from ddpdoctor.host import Host
from ddpdoctor.host.system import Interface
from ddpdoctor.logs.log import Log, log_fields
from ddpdoctor.model import Evidence, Finding, Judgement, Kind, Level, Passed, Skipped
from ddpdoctor.redact import quote, show_value

VARIABLE = "GLOO_SOCKET_IFNAME"
_UNKNOWN_NAME = r"Unable to find (?:interface for|address for|interface): ?(?P<name>\S+)"
_LOOPBACK = (
    r"(?:gloo|Gloo|pair\.cc).{0,200}(?:remote=|connect )\[(?P<address>127\.[\d.]+|::1)\].{0,60}(?:refused|rank=)"
    r"|(?:Gloo|gloo).{0,200}refused, remote=\[(?P<address2>127\.[\d.]+)\]"
)
_UNRESOLVED = (
    r"[Uu]nable to resolve hostname to a \(local\) address|makeDeviceForHostname\(\): unsupported gloo device"
)


class GlooInterface(Check):
    """GLOO_SOCKET_IFNAME names an interface that gloo cannot use.

    What it finds:
        A name in the list that this machine does not have, or that has no address; NCCL's syntax (^docker0,
        =eth0, the beginning of a name), which gloo takes for a name; an empty entry. In a job of several nodes
        also an interface that is down or is loopback. Several names, with commas between them, are fine.

    Why it matters:
        gloo looks each name up literally when the process group is created, and raises "Unable to find address
        for" at the first one that it does not find. A loopback address makes other nodes connect to themselves.

    Example:
        The value of NCCL_SOCKET_IFNAME copied over:
            export GLOO_SOCKET_IFNAME=^docker0,lo

    Fix:
        Leave the variable unset, and gloo takes the interface of this host's name; or give whole names:
            export GLOO_SOCKET_IFNAME=eth0
    """

    code = "DD702"
    title = "gloo has a network interface"
    breaks_group = True
    raises = (_UNKNOWN_NAME, _LOOPBACK, _UNRESOLVED)
    log_words = ("Unable to find interface", "Unable to find address", "connectFullMesh")

    def examine_host(self, host: Host) -> Judgement:
        value = host.environ.get(VARIABLE, "")
        if not value:
            return Skipped(f"{VARIABLE} is not set, gloo takes the interface of this host's name")
        problems = list(_problems(host, value))
        if not problems:
            return Passed(f"{VARIABLE}={show_value(VARIABLE, value)} is usable")
        return self._finding(host, value, " and ".join(problems))

    def examine_log(self, log: Log) -> Judgement:
        mention = log.search(_UNKNOWN_NAME)
        if mention:
            text = f"gloo found no interface {quote(mention.match['name'])}"
            why = "GLOO_SOCKET_IFNAME holds whole names of interfaces; NCCL's prefixes and ^ are no names. "
            return self._told(text, why, log_fields(mention))
        reason = log.reason(_LOOPBACK, _UNRESOLVED)
        groups = reason.match.groupdict()
        address = groups.get("address") or groups.get("address2")
        text = (
            f"gloo gave out the loopback address {address}"
            if address
            else "gloo found no address for its own host"
        )
        why = "Without GLOO_SOCKET_IFNAME gloo looks up the host's own name, and /etc/hosts often has it at 127.0.1.1. "
        return self._told(text, why, log_fields(reason))

    def _told(self, headline: str, why: str, details: dict[str, Any]) -> Finding:
        return self.fail(
            headline,
            why=f"{why}Ranks on other nodes then dial themselves.",
            fix="ip -br address     # the interface that leads to the other nodes\nexport "
            "GLOO_SOCKET_IFNAME=eth0     # "
            "and TP_SOCKET_IFNAME for RPC; or map the host's name to its real address in /etc/hosts",
            **details,
        )

    def _finding(self, host: Host, value: str, problem: str) -> Finding:
        gloo = host.launch.backend == "gloo"
        usable = [
            interface.name
            for interface in host.interfaces
            if interface.up and interface.addresses and not interface.loopback
        ]
        return Finding(
            self.code,
            # With NCCL the variable matters only where the script creates a gloo group beside it.
            Level.FAIL if gloo else Level.WARN,
            f"{VARIABLE}={show_value(VARIABLE, value)} {problem}",
            why="gloo looks every name of the list up literally. "
            + (
                "The process group cannot be created, or its ranks do not reach each other."
                if gloo
                else "A gloo group that the script creates beside NCCL's fails, and so does one for both backends."
            ),
            fix=f"unset {VARIABLE}" + (f"; or: export {VARIABLE}={usable[0]}" if usable else ""),
            evidence=tuple(Evidence(_describe(interface)) for interface in host.interfaces),
            about=Kind.VARIABLE.of(VARIABLE),
        )


def _problems(host: Host, value: str) -> Iterator[str]:
    if value[0] in "^=":
        yield f"has NCCL's {quote(value[0])}, which gloo takes for a part of the name"
        return  # names after it are NCCL's too
    # A comma at the end is fine: torch reads the list up to it.
    for entry in value.removesuffix(",").split(","):
        found = next((interface for interface in host.interfaces if interface.name == entry), None)
        if not entry:
            yield "has an empty entry"
        elif found is None:
            yield _unknown(host, entry)
        elif not found.addresses:
            yield f"names {entry}, which has no address"
        elif host.launch.nnodes > 1 and found.loopback:
            yield f"names the loopback interface {entry}, and the job has {host.launch.nnodes} nodes"
        elif host.launch.nnodes > 1 and not found.up:
            # On one node the kernel delivers to the address of an interface that is down.
            yield f"names {entry}, which is down"


def _unknown(host: Host, entry: str) -> str:
    longer = [interface.name for interface in host.interfaces if interface.name.startswith(entry.strip())]
    if entry.strip() != entry:
        return f"has a space around {quote(entry.strip())}, which gloo takes for a part of the name"
    if longer:
        return f"names {quote(entry)}, the beginning of {longer[0]}, and gloo takes whole names only"
    if entry == host.environ[VARIABLE]:
        return "names an interface that this machine does not have"
    return f"names {quote(entry)}, which this machine does not have"


def _describe(interface: Interface) -> str:
    return f"{interface.name} is {'up' if interface.up else 'down'}: {', '.join(interface.addresses) or 'no address'}"
