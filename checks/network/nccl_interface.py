import re
from collections.abc import Sequence

from ddpdoctor.check import Check, Confidence, Evidence, Judgement, Passed, Role, Skipped
from ddpdoctor.host import Host
from ddpdoctor.host.nccl_settings import NameList, Setting, nccl_setting
from ddpdoctor.host.system import Interface
from ddpdoctor.logs.log import Log, log_fields
from ddpdoctor.text import show_variable

VARIABLE = "NCCL_SOCKET_IFNAME"

_PREFERENCES = ("ib", "^docker,lo,virbr", "docker", "lo", "virbr")
"""The lists that NCCL tries in this order where the variable is not set."""
_LOCAL = ("docker", "lo", "virbr")
_NONE_FOUND = r"(?i)no (?:usable |socket )?interface (?:was )?found|No interface name|no usable interface"
_NO_ADDRESS = r"with family \d+ is neither AF_INET"
_LOCAL_INTERFACE = (
    r"NCCL INFO Bootstrap ?: ?Using \[?\d*\]?(?P<interface>docker\w*|lo|virbr\w*|br-\w+|veth\w*):"
    r"(?P<address>[^<\s]+)<"
)
_CONNECTS_TO_ITSELF = r"NCCL WARN .{0,40}onnect to (?:127\.[\d.]+|::1)<\d+> failed"


class NcclInterface(Check):
    """NCCL_SOCKET_IFNAME matches no usable network interface, or one that other nodes cannot reach.

    What it finds:
        The value, from the environment or from NCCL's configuration files, matches no interface of this machine that
        is up and has an address; or, in a job of several nodes, only loopback or a container bridge. The value is a
        list of prefixes (eth0,ib); with '=' at its start, of whole names; '^' excludes. gloo does not read the
        variable, so it is not checked with that backend.

    Why it matters:
        NCCL opens its bootstrap connection over a network interface, even if all ranks share one node and all data goes
        over NVLink. Without an interface it fails with an internal error about an address family; with one that the
        other nodes cannot reach, ranks wait until the timeout of the process group.

    Example:
        A value from another cluster with other interface names:
            export NCCL_SOCKET_IFNAME=eth0     # here it is ens5

    Fix:
        Leave the variable unset, so that NCCL chooses; or name the interface that leads to the other nodes, which
        ip -br address lists on every node. If its name differs between nodes, list several prefixes:
            export NCCL_SOCKET_IFNAME=eth,ens
    """

    code = "DD701"
    title = "NCCL has a network interface"
    breaks_group = True
    raises = (_NONE_FOUND, _NO_ADDRESS)
    log_words = ("interface found", "Bootstrap", "interface name", "usable interface")

    def examine_host(self, host: Host) -> Judgement:
        if host.launch.backend != "nccl":
            return Skipped(f"the backend is {host.launch.backend}, which does not read {VARIABLE}")
        setting = nccl_setting(host, VARIABLE)
        if setting is None or len(setting.value) < 2:  # NCCL ignores a single character
            choices = (_matching(host.interfaces, names) for names in _PREFERENCES)
            chosen = next((choice for choice in choices if choice), ())
            if not chosen:
                return self.fail(
                    "no network interface is up with an address",
                    fix="ip link set lo up",
                    evidence=_evidence(host),
                )
            if host.launch.nnodes > 1 and all(interface.name.startswith(_LOCAL) for interface in chosen):
                return self.fail(
                    f"NCCL has only {_names(chosen)} to use, and the job has {host.launch.nnodes} nodes",
                    fix="docker run --network host ...     # or bring up the interface that leads to the other nodes",
                    evidence=_evidence(host),
                )
            return Passed(f"NCCL chooses {_names(chosen)}")
        matched = _matching(host.interfaces, setting.value)
        if not matched:
            problem = "no network interface that is up"
        elif host.launch.nnodes > 1 and all(interface.loopback for interface in matched):
            problem = f"only loopback, and the job has {host.launch.nnodes} nodes"
        else:
            return Passed(f"{VARIABLE} matches {_names(matched)}")
        return self.fail(
            f"{_shown(setting)} matches {problem}", fix=_fix(host, setting), evidence=_evidence(host)
        )

    def examine_log(self, log: Log) -> Judgement:
        reason = log.search(_NONE_FOUND, _NO_ADDRESS)
        role, confidence = Role.CAUSE, Confidence.CERTAIN
        headline = "NCCL found no network interface"
        if reason is None:
            several_nodes = log.failed and len(log.hosts) > 1
            reason = log.reason(_LOCAL_INTERFACE if several_nodes else _CONNECTS_TO_ITSELF)
            groups = reason.match.groupdict()
            headline = (
                f"NCCL chose interface {groups.get('interface', 'lo')}, which does not lead to other nodes"
            )
            failed = log.search(rf"onnect to {re.escape(groups.get('address', ''))}\S*<\d+> failed")
            role, confidence = Role.CAUSE if failed else Role.ATTEMPT, Confidence.LIKELY
        values = log.nccl_values(VARIABLE)
        headline += f" for {show_variable(VARIABLE, values)}" if values else ""
        return self.fail(headline, confidence=confidence, **log_fields(reason, role=role))


def _matching(interfaces: Sequence[Interface], names: str) -> tuple[Interface, ...]:
    wanted = NameList.parse(names)
    return tuple(it for it in interfaces if it.up and set(it.addresses) - {"::1"} and wanted.allows(it.name))


def _names(interfaces: Sequence[Interface]) -> str:
    return ", ".join(interface.name for interface in interfaces)


def _shown(setting: Setting) -> str:
    where = "" if setting.source == "environment" else f" in {setting.source}"
    return show_variable(VARIABLE, setting.value) + where


def _fix(host: Host, setting: Setting) -> str:
    off = f"unset {VARIABLE}" if setting.source == "environment" else f"remove the line from {setting.source}"
    matching = _matching(host.interfaces, "^docker,lo,virbr")
    usable = [interface.name for interface in matching if not interface.loopback]
    return f"{off}; or: export {VARIABLE}={usable[0]}" if usable else off


def _evidence(host: Host) -> tuple[Evidence, ...]:
    return tuple(Evidence(str(interface)) for interface in host.interfaces)
