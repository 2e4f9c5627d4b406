from ddpdoctor.check import Check, Judgement, Kind, Passed
from ddpdoctor.group.group_record import GroupRecord
from ddpdoctor.text import listing


class MtuDiffers(Check):
    """The largest packet of the network interfaces (MTU) differs between the hosts.

    What it finds:
        In a check of several hosts: interfaces over which ranks reach each other, and whose MTU is not the same on
        every host.

    Why it matters:
        Small messages pass and large ones are lost where a switch between the hosts does not take, or not answer for,
        packets of the larger size: ranks meet, barriers work, and the first all-reduce of gradients hangs. On one
        Ethernet every interface has to have the same MTU.

    Example:
        node0$ cat /sys/class/net/eth0/mtu     # 9000
        node1$ cat /sys/class/net/eth0/mtu     # 1500

    Fix:
        Give the interfaces the same MTU, and see whether packets of that size pass:
            ip link set eth0 mtu 9000
            ping -M do -s 8972 HOST
    """

    code = "DD711"
    title = "the hosts' interfaces have the same MTU"

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        known = [node for node in ranks.nodes if node.mtu]
        self.require(len(known) >= 2, "the job has one host, or the MTU of its interfaces is not known")
        hosts: dict[int, list[str]] = {}
        for node in known:
            hosts.setdefault(node.mtu, []).append(node.host)
        if len(hosts) == 1:
            return Passed(f"the interfaces of {len(known)} hosts have an MTU of {known[0].mtu}")
        by_size = "; ".join(f"{mtu} on {listing(names)}" for mtu, names in sorted(hosts.items()))
        return self.warn(
            f"the MTU differs between hosts: {by_size}",
            evidence=[f"{node.host}: {node.interface} ({node.address}) has {node.mtu}" for node in known],
            about=Kind.HOST.of(*(node.host for node in known)),
        )
