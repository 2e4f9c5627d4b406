from collections.abc import Iterator

from ddpdoctor.check import Check, Judgement, Kind, Passed
from ddpdoctor.host import Host
from ddpdoctor.logs.log import Log, log_fields
from ddpdoctor.text import quote, show_variable

VARIABLE = "GLOO_SOCKET_IFNAME"
_UNKNOWN_NAME = r"Unable to find (?:interface for|address for|interface): ?(?P<name>\S+)"
_LOOPBACK = (
    r"(?:gloo|Gloo|pair\.cc).{0,200}(?:remote=|connect )\[(?P<address>127\.[\d.]+|::1)\].{0,60}(?:refused|rank=)"
    r"|(?:Gloo|gloo).{0,200}refused, remote=\[(?P<address2>127\.[\d.]+)\]"
)
_NOT_CONNECTED = r"[Gg]loo connectFullMesh failed"
_UNRESOLVED = (
    r"[Uu]nable to resolve hostname to a \(local\) address|makeDeviceForHostname\(\): unsupported gloo device"
)


class GlooInterface(Check):
    """GLOO_SOCKET_IFNAME names an interface that gloo cannot use.

    What it finds:
        A name in the list that does not exist on this machine, or has no address; NCCL's syntax (^docker0, =eth0, a
        prefix), which gloo reads as a name; an empty entry. In a job of several nodes also an interface that is down
        or is loopback. Several names, separated by commas, are correct.

    Why it matters:
        gloo looks up each name literally when the process group is created, and raises "Unable to find address for"
        at the first unknown one. Without the variable it uses the address of the hostname, which /etc/hosts often
        maps to 127.0.1.1; ranks on other nodes then connect to themselves.

    Example:
        The value of NCCL_SOCKET_IFNAME copied over:
            export GLOO_SOCKET_IFNAME=^docker0,lo

    Fix:
        Give the whole name of the interface that leads to the other nodes, which ip -br address lists:
            export GLOO_SOCKET_IFNAME=eth0           # and TP_SOCKET_IFNAME for RPC
        Or leave it unset, and map the hostname to its real address in /etc/hosts.
    """

    code = "DD702"
    title = "gloo has a network interface"
    breaks_group = True
    raises = (_UNKNOWN_NAME, _LOOPBACK, _UNRESOLVED)
    log_words = ("connectFullMesh",)

    def examine_host(self, host: Host) -> Judgement:
        value = host.environ.get(VARIABLE, "")
        self.require(value, f"{VARIABLE} is not set, gloo uses the interface of the hostname")
        problems = " and ".join(_problems(host, value))
        if not problems:
            return Passed(f"{show_variable(VARIABLE, value)} is usable")
        # With NCCL the variable matters only where the script creates a gloo group as well.
        report = self.fail if host.launch.backend == "gloo" else self.warn
        usable = host.usable_interfaces
        return report(
            f"{show_variable(VARIABLE, value)} {problems}",
            fix=f"unset {VARIABLE}" + (f"; or: export {VARIABLE}={usable[0].name}" if usable else ""),
            evidence=[str(interface) for interface in host.interfaces],
            about=Kind.VARIABLE.of(VARIABLE),
        )

    def examine_log(self, log: Log) -> Judgement:
        if reason := log.search(_UNKNOWN_NAME):
            headline = f"gloo found no interface {quote(reason.match['name'])}"
        else:
            reason = log.reason(_LOOPBACK, _UNRESOLVED).confirmed_by(log.search(_NOT_CONNECTED))
            groups = reason.match.groupdict()
            address = groups.get("address") or groups.get("address2")
            headline = "gloo found no address for its own host"
            if address:
                headline = f"gloo announced the loopback address {address}"
        return self.fail(headline, **log_fields(reason))


def _problems(host: Host, value: str) -> Iterator[str]:
    if value[0] in "^=":
        yield f"has NCCL's {quote(value[0])}, which gloo reads as a part of the name"
        return  # names after it are NCCL's too
    # A comma at the end is fine: torch reads the list up to it.
    for entry in value.removesuffix(",").split(","):
        interface = next((interface for interface in host.interfaces if interface.name == entry), None)
        if not entry:
            yield "has an empty entry"
        elif interface is None:
            yield _unknown(host, entry)
        elif not interface.addresses:
            yield f"names {entry}, which has no address"
        elif host.launch.nnodes > 1 and interface.loopback:
            yield f"names the loopback interface {entry}, and the job has {host.launch.nnodes} nodes"
        elif host.launch.nnodes > 1 and not interface.up:
            # On one node the kernel delivers to the address of an interface that is down, too.
            yield f"names {entry}, which is down"


def _unknown(host: Host, entry: str) -> str:
    longer = [interface.name for interface in host.interfaces if interface.name.startswith(entry.strip())]
    if entry.strip() != entry:
        return f"has a space around {quote(entry.strip())}, which gloo reads as a part of the name"
    if longer:
        return f"names {quote(entry)}, the beginning of {longer[0]}, and gloo needs whole names"
    if entry == host.environ[VARIABLE]:
        return "names an interface that this machine does not have"
    return f"names {quote(entry)}, which this machine does not have"
