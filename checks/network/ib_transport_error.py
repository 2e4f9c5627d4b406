from collections.abc import Sequence

from ddpdoctor.check import Check
from ddpdoctor.host import Host
from ddpdoctor.host.infiniband import IbPort
from ddpdoctor.host.nccl import NameList, is_on, nccl_setting
from ddpdoctor.model import Evidence, Family, Finding, Judgement, Passed, Skipped
from ddpdoctor.text import plural

FLAPPING = 10
"""Link losses since the counters were cleared from which a port is remarkable: reboots of a switch explain fewer."""


class IbTransportError(Check):
    """An InfiniBand or RoCE link is down, not configured, or comes and goes.

    What it finds:
        In a job of several nodes on NCCL, among the adapters that NCCL_IB_HCA allows: no port that is active;
        a port whose cable is connected but that no subnet manager has configured; a port that is down and was
        up before, while its neighbours are active. A port that was never up or that is disabled is an unused
        one, and fine, as are network cards that could do RoCE and are not connected.
        Ports that lost their link often are information: the counters do not say when.

    Why it matters:
        NCCL takes the ports that are active when the job starts. Without any it falls back to sockets, many
        times slower, and says so only in its debug output; where one node has fewer ports than the others, all
        wait for it. A link that goes down while the job runs ends it with a completion error (vendor error 129).

    Example:
        mlx5_3 port 1 is DOWN, and was down 4 times; mlx5_0 to mlx5_2 are ACTIVE.

    Fix:
        Reseat or replace the cable, look at the switch's port (ibstat, ibdiagnet), start the subnet manager;
        meanwhile leave the port out on every node:
            export NCCL_IB_HCA=^mlx5_3
    """

    code = "DD705"
    name = "ib-transport-error"
    family = Family.NETWORK
    title = "the InfiniBand links are up"

    def examine_host(self, host: Host) -> Judgement:
        if not host.infiniband:
            return Skipped("this machine has no InfiniBand or RoCE adapter")
        if is_on(nccl_setting(host, "NCCL_IB_DISABLE")):
            return Skipped("NCCL_IB_DISABLE is set")
        ports = _allowed(host)
        active = [port for port in ports if port.active]
        findings = []
        if host.plan.backend == "nccl" and host.plan.nnodes > 1:
            findings = self._links(ports, active)
        flapping = [port for port in active if port.counters.get("link_downed", 0) >= FLAPPING]
        if flapping:
            findings.append(self._flapping(flapping))
        return findings or Passed(f"{len(active)} of {plural(len(ports), 'InfiniBand port')} active")

    def _links(self, ports: Sequence[IbPort], active: Sequence[IbPort]) -> list[Finding]:
        waiting = [port for port in ports if port.state in ("INIT", "ARMED")]
        if waiting:
            return [self._unconfigured(waiting)]
        if not active and any(port.link_layer == "InfiniBand" for port in ports):
            return [self._none_active(ports)]
        dropped = [port for port in ports if _was_up(port)]
        return [self._dropped(dropped)] if active and dropped else []

    def _none_active(self, ports: Sequence[IbPort]) -> Finding:
        return self.warn(
            f"none of {plural(len(ports), 'InfiniBand port')} is active",
            why="NCCL finds no InfiniBand device and goes between the nodes over sockets, many times slower, or "
            "fails where NCCL_NET=IB asks for InfiniBand.",
            fix="ibstat     # connect the ports, or set NCCL_IB_DISABLE=1 on every node if they are not meant",
            evidence=_evidence(ports),
        )

    def _unconfigured(self, ports: Sequence[IbPort]) -> Finding:
        return self.warn(
            f"{ports[0].name} has a cable but is not configured (state {ports[0].state})",
            why="The subnet manager gives a port its address. Until it does, the port is not active and NCCL does "
            "not use it.",
            fix="systemctl status opensm     # on the node that runs the subnet manager, or look at the switch",
            evidence=_evidence(ports),
        )

    def _dropped(self, ports: Sequence[IbPort]) -> Finding:
        return self.warn(
            f"{ports[0].name} is down and was up before",
            why="NCCL uses fewer ports on this node than on the others. The collectives run at the speed of the "
            "node with the fewest, and ranks that count on this port fail to connect.",
            fix=f"ibstat {ports[0].device}     # check cable and switch; or on every node: "
            f"export NCCL_IB_HCA=^{ports[0].device}",
            evidence=_evidence(ports),
        )

    def _flapping(self, ports: Sequence[IbPort]) -> Finding:
        lost = ports[0].counters["link_downed"]
        return self.info(
            f"{ports[0].name} lost its link {lost} times",
            why="The port is active now. A link that goes down while a job runs ends it with a completion error; "
            "the counter covers the time since the driver was loaded and does not say when.",
            fix=f"perfquery -R     # clear the counters, and look again after a while: ibstat {ports[0].device}",
            evidence=_evidence(ports),
        )


def _allowed(host: Host) -> list[IbPort]:
    setting = nccl_setting(host, "NCCL_IB_HCA")
    wanted = NameList.parse(setting.value if setting else "")
    return [port for port in host.infiniband if wanted.allows(port.device, port.number)]


def _was_up(port: IbPort) -> bool:
    return port.state == "DOWN" and port.physical != "Disabled" and port.counters.get("link_downed", 0) > 0


def _evidence(ports: Sequence[IbPort]) -> tuple[Evidence, ...]:
    return tuple(Evidence(_describe(port)) for port in ports)


def _describe(port: IbPort) -> str:
    counts = ", ".join(f"{name} {count}" for name, count in sorted(port.counters.items()) if count)
    return f"{port.name} ({port.link_layer}) is {port.state}, {port.physical}" + (
        f": {counts}" if counts else ""
    )
