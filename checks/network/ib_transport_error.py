from collections.abc import Iterator, Sequence

from ddpdoctor.check import Check, Confidence, Finding, Judgement, Kind, Passed, Role
from ddpdoctor.host import Host
from ddpdoctor.host.infiniband import IbPort
from ddpdoctor.host.nccl_settings import NameList, is_on, nccl_setting
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, Reason, log_fields
from ddpdoctor.logs.nccl_facts import adapter_of
from ddpdoctor.text import listing, plural, quote

FLAPPING = 10
"""Link losses since the counters were cleared; reboots of a switch cause fewer."""
_COMPLETION = r"Got completion .{0,80}?(?:error|status=?) ?(?:IBV_WC_\w+\()?(?P<status>\d+)"
_EVENT = (
    r"NET/IB ?: .{0,40}(?:Got )?(?:non-fatal )?async (?:fatal )?(?:event|error) ?: ?"
    r"(?P<event>(?!GID|client|comm).*(?:error|fatal|down).*)"
)
_OVER_LIBFABRIC = r"NET/OFI .{0,40}Request .{0,40}completed with error\. RC: \d+\. Error: (?P<error>[^.]*)"
"""By the plugin for EFA and other fabrics of libfabric."""
_STATUS = {
    4: "a local protection error",
    5: "a flush after another error",
    10: "a remote access error",
    12: "retries used up: the other side did not answer",
    13: "retries used up: the other side was not ready",
}


class IbTransportError(Check):
    """An InfiniBand or RoCE link is down, not configured, or unstable.

    What it finds:
        In a job of several nodes on NCCL, among the adapters that NCCL_IB_HCA allows: no active port; a port with a
        cable that no subnet manager has configured; a port that is down and was up before, while others are active.
        Ports that were never up or are disabled count as unused, and so do network cards that support RoCE and are
        not connected. Ports that lost their link often are information: the counters do not show when.

    Why it matters:
        NCCL uses the ports that are active when the job starts. Without any it falls back to sockets, which are many
        times slower, and reports that only in its debug output; if one node has fewer ports than the others, all wait
        for it. A link that goes down while the job runs ends it with a completion error (vendor error 129).

    Example:
        mlx5_3 port 1 is DOWN, and was down 4 times; mlx5_0 to mlx5_2 are ACTIVE.

    Fix:
        Look for the broken link, then check or replace the cable, the transceiver and the switch port:
            ibstat; ibdev2netdev; perfquery; dmesg -T | grep -i mlx
        Meanwhile exclude the port on every node:
            export NCCL_IB_HCA=^mlx5_3
    """

    code = "DD705"
    title = "the InfiniBand links are up"
    raises = (_COMPLETION, _EVENT, _OVER_LIBFABRIC)

    def examine_host(self, host: Host) -> Judgement:
        self.require(host.infiniband, "this machine has no InfiniBand or RoCE adapter")
        self.require(not is_on(nccl_setting(host, "NCCL_IB_DISABLE")), "NCCL_IB_DISABLE is set")
        ports = _allowed(host)
        active = [port for port in ports if port.active]
        several = host.launch.backend == "nccl" and host.launch.nnodes > 1
        findings = self._links(ports, active) if several else ()
        flapping = [port for port in active if port.counters.get("link_downed", 0) >= FLAPPING]
        return [*findings, *map(self._flapping, flapping)] or Passed(
            f"{len(active)} of {plural(len(ports), 'InfiniBand port')} active"
        )

    def examine_log(self, log: Log) -> Judgement:
        if reason := log.search(_EVENT):
            return self.fail(
                f"an InfiniBand port reported {quote(reason.match['event'].strip())}",
                **log_fields(reason, role=Role.SYSTEM),
            )
        if reason := log.search(_OVER_LIBFABRIC):
            headline = f"a transfer over libfabric failed: {reason.match['error'].strip()}"
            return self._transfer_failed(headline, reason)
        reason = log.search(_COMPLETION)
        # DD703 reports a connection that never worked; this one did.
        if reason is None or (reason.match["status"] == "12" and not log.training):
            return NOT_IN_OUTPUT
        status = int(reason.match["status"])
        meaning = _STATUS.get(status, "an error of the transport")
        role = Role.CAUSE if status in _STATUS else Role.MESSENGER
        return self._transfer_failed(
            f"an InfiniBand transfer{adapter_of(log, _COMPLETION)} ended with status {status}, {meaning}",
            reason,
            role,
        )

    def _transfer_failed(self, headline: str, reason: Reason, role: Role = Role.CAUSE) -> Finding:
        return self.fail(
            headline,
            why="The transfer had worked before, so the path between the two nodes was lost: an unstable link, a "
            "switch, or the peer's node. If the peer failed first, its own output shows why.",
            fix="look at the output of the peer that the line names, then at its links: ibstat, perfquery, the switch\n"
            "NCCL_IB_TIMEOUT=22 NCCL_IB_RETRY_CNT=7     # gives a link more time to recover",
            confidence=Confidence.LIKELY,
            **log_fields(reason, role=role),
        )

    def _links(self, ports: Sequence[IbPort], active: Sequence[IbPort]) -> Iterator[Finding]:
        if waiting := [port for port in ports if port.state in ("INIT", "ARMED")]:
            # One finding for all ports, because one subnet manager configures them.
            verb = "has a cable but is" if len(waiting) == 1 else "have cables but are"
            yield self.warn(
                f"{listing([port.name for port in waiting])} {verb} not configured (state {waiting[0].state})",
                fix="systemctl status opensm     # on the node that runs the subnet manager, or look at the switch",
                evidence=map(_describe, waiting),
                about=Kind.INTERFACE.of(*(port.name for port in waiting)),
            )
        elif not active and any(port.link_layer == "InfiniBand" for port in ports):
            yield self.warn(
                f"none of {plural(len(ports), 'InfiniBand port')} is active",
                fix="ibstat     # connect the ports, or set NCCL_IB_DISABLE=1 on every node if they are not to be used",
                evidence=map(_describe, ports),
            )
        for port in filter(_was_up, ports if active else ()):
            yield self.warn(
                f"{port.name} is down and was up before",
                evidence=(_describe(port),),
                about=Kind.INTERFACE.of(port.name),
            )

    def _flapping(self, port: IbPort) -> Finding:
        return self.info(
            f"{port.name} lost its link {port.counters['link_downed']} times",
            why="The port is active now. A link that goes down while a job runs ends it with a completion error. The "
            "counter starts when the driver is loaded, and does not show when the link was lost.",
            fix=f"perfquery -R     # clears the counters; look again later: ibstat {port.device}",
            evidence=(_describe(port),),
            about=Kind.INTERFACE.of(port.name),
        )


def _allowed(host: Host) -> list[IbPort]:
    setting = nccl_setting(host, "NCCL_IB_HCA")
    wanted = NameList.parse(setting.value if setting else "")
    return [port for port in host.infiniband if wanted.allows(port.device, port.number)]


def _was_up(port: IbPort) -> bool:
    return port.state == "DOWN" and port.physical != "Disabled" and port.counters.get("link_downed", 0) > 0


def _describe(port: IbPort) -> str:
    counts = ", ".join(f"{name} {count}" for name, count in sorted(port.counters.items()) if count)
    described = f"{port.name} ({port.link_layer}) is {port.state}, {port.physical}"
    return f"{described}: {counts}" if counts else described
