from collections.abc import Sequence
from typing import Any

from ddpdoctor.check import Check
from ddpdoctor.host import Host
from ddpdoctor.host.nccl_settings import NameList, Setting, nccl_setting
from ddpdoctor.host.system import Interface
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, log_fields
from ddpdoctor.model import Confidence, Evidence, Finding, Judgement, Passed, Role, Skipped
from ddpdoctor.redact import show_value

VARIABLE = "NCCL_SOCKET_IFNAME"

_PREFERENCES = ("ib", "^docker,lo,virbr", "docker", "lo", "virbr")
"""The lists that NCCL tries in turn where the variable is not set."""
_LOCAL = ("docker", "lo", "virbr")
_VARIABLE = "NCCL_SOCKET_IFNAME"
_NONE_FOUND = r"(?i)no (?:usable |socket )?interface (?:was )?found|No interface name|no usable interface"
_NO_ADDRESS = r"with family \d+ is neither AF_INET"
_LOCAL_INTERFACE = (
    r"NCCL INFO Bootstrap ?: ?Using \[?\d*\]?(?P<interface>docker\w*|lo|virbr\w*|br-\w+|veth\w*):"
)
_DIALS_ITSELF = r"NCCL WARN .{0,40}onnect to (?:127\.[\d.]+|::1)<\d+> failed"


class NcclInterface(Check):
    """NCCL_SOCKET_IFNAME matches no usable network interface, or one that other nodes cannot reach.

    What it finds:
        The value, from the environment or from NCCL's configuration files, matches no interface of this machine
        that is up and has an address; or, in a job of several nodes, only loopback or a container bridge.
        The value is a list of beginnings of names (eth0,ib); '=' at its start asks for whole names, '^' excludes.
        On the gloo backend the variable is not read, and not judged.

    Why it matters:
        NCCL opens its bootstrap connection over an interface even where all ranks share one node and all data
        goes over NVLink. Without one it ends with an internal error about an address family; with one that the
        other nodes cannot reach, ranks wait until the process group times out.

    Example:
        A value from another cluster, whose interfaces are named differently:
            export NCCL_SOCKET_IFNAME=eth0     # here it is ens5

    Fix:
        Leave the variable unset, and NCCL chooses; or name the interface that has the route to the other nodes
        (ip -brief address). Where nodes name it differently, list several beginnings: NCCL_SOCKET_IFNAME=eth,ens.
    """

    code = "DD701"
    title = "NCCL has a network interface"
    breaks_group = True
    raises = (_NONE_FOUND, _NO_ADDRESS)
    log_words = ("interface found", "Bootstrap", "interface name", "with family", "usable interface")

    def examine_host(self, host: Host) -> Judgement:
        if host.launch.backend != "nccl":
            return Skipped(f"the backend is {host.launch.backend}, which does not read {VARIABLE}")
        setting = nccl_setting(host, VARIABLE)
        if setting is None or len(setting.value) < 2:  # NCCL takes a single character for no value
            return self._judge_choice(host)
        matched = _matching(host.interfaces, setting.value)
        if not matched:
            return self.fail(
                f"{_shown(setting)} matches no network interface that is up",
                why="NCCL needs an interface to bring its ranks together, on one node too. It uses the ones "
                "that the variable matches and no other, so creating the communicator fails on this machine.",
                fix=_fix(host, setting),
                evidence=_evidence(host),
            )
        if host.launch.nnodes > 1 and all(interface.loopback for interface in matched):
            return self.fail(
                f"{_shown(setting)} matches only loopback, and the job has {host.launch.nnodes} nodes",
                why="NCCL tells the other nodes to connect to this machine's loopback address. They connect "
                "to themselves instead, and wait until the process group times out.",
                fix=_fix(host, setting),
                evidence=_evidence(host),
            )
        return Passed(f"{VARIABLE} matches {_names(matched)}")

    def examine_log(self, log: Log) -> Judgement:
        reason = log.search(_NONE_FOUND, _NO_ADDRESS)
        if reason:
            return self._told(log, "NCCL found no network interface", log_fields(reason))
        reason = (
            log.search(_LOCAL_INTERFACE) if log.failed and len(log.hosts) > 1 else log.search(_DIALS_ITSELF)
        )
        if reason is None:
            return NOT_IN_OUTPUT
        interface = reason.match.groupdict().get("interface", "lo")
        text = f"NCCL took interface {interface}, which does not lead to other nodes"
        return self._told(log, text, log_fields(reason, role=Role.LIBRARY), Confidence.LIKELY)

    def _told(
        self, log: Log, text: str, details: dict[str, Any], confidence: Confidence = Confidence.CERTAIN
    ) -> Finding:
        values = {
            value for facts in log.nccl.values() for name, value in facts.variables if name == _VARIABLE
        }
        shown = f" for {_VARIABLE}={show_value(_VARIABLE, ', '.join(sorted(values)))}" if values else ""
        return self.fail(
            text + shown,
            why=f"{_VARIABLE} is a list of beginnings of names, the same for every node it is exported to. "
            "Where no interface of a node begins so, NCCL there cannot tell the others its address.",
            fix=f"on every node: ip -br address\nexport {_VARIABLE}=enp4s0,enp6s0     # the names of all "
            f"nodes; or unset {_VARIABLE}",
            confidence=confidence,
            **details,
        )

    def _judge_choice(self, host: Host) -> Judgement:
        choices = (_matching(host.interfaces, names) for names in _PREFERENCES)
        chosen = next((choice for choice in choices if choice), ())
        if not chosen:
            return self.fail(
                "no network interface is up with an address",
                why="NCCL needs one to bring its ranks together, on one node too; loopback is enough there.",
                fix="ip link set lo up",
                evidence=_evidence(host),
            )
        if host.launch.nnodes > 1 and all(interface.name.startswith(_LOCAL) for interface in chosen):
            return self.fail(
                f"NCCL has only {_names(chosen)} to use, and the job has {host.launch.nnodes} nodes",
                why="Loopback and container bridges carry traffic inside this machine only. The other nodes "
                "cannot reach this one, and wait until the process group times out.",
                fix="run the container with the host's network (docker run --network host ...), or bring up "
                "the interface that has the route to the other nodes",
                evidence=_evidence(host),
            )
        return Passed(f"NCCL chooses {_names(chosen)}")


def _matching(interfaces: Sequence[Interface], names: str) -> tuple[Interface, ...]:
    wanted = NameList.parse(names)
    return tuple(
        interface
        for interface in interfaces
        if interface.up and set(interface.addresses) - {"::1"} and wanted.allows(interface.name)
    )


def _names(interfaces: Sequence[Interface]) -> str:
    return ", ".join(interface.name for interface in interfaces)


def _shown(setting: Setting) -> str:
    where = "" if setting.source == "environment" else f" in {setting.source}"
    return f"{VARIABLE}={show_value(VARIABLE, setting.value)}{where}"


def _fix(host: Host, setting: Setting) -> str:
    away = (
        f"unset {VARIABLE}" if setting.source == "environment" else f"remove the line from {setting.source}"
    )
    usable = [one for one in _matching(host.interfaces, "^docker,lo,virbr") if not one.loopback]
    return f"{away}; or: export {VARIABLE}={usable[0].name}" if usable else away


def _evidence(host: Host) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(
            f"{interface.name} is {'up' if interface.up else 'down'}: {', '.join(interface.addresses) or 'no address'}"
        )
        for interface in host.interfaces
    )
