from ddpdoctor.check import Check, Judgement, Kind, Passed
from ddpdoctor.group.group_record import GroupRecord
from ddpdoctor.text import listing

LIMIT = 5.0
"""Seconds. What the hosts' first message takes on a busy machine counts as skew, too."""


class ClockSkew(Check):
    """The clocks of the hosts differ.

    What it finds:
        A host whose clock is 5 seconds or more ahead of, or behind, that of the host of rank 0, in a check of several
        hosts.

    Why it matters:
        The order of lines in merged logs, and who failed first by their times, is wrong. Checkpoints that are chosen
        by the time of the file, and build tools that compare such times, take the wrong one on a shared file system.
        Slurm's munge and Kerberos refuse hosts whose clocks are minutes apart.

    Example:
        A host whose chrony cannot reach its servers since it was moved to another network.

    Fix:
        See whether the clock is synchronized, on each host:
            timedatectl
            chronyc tracking
    """

    code = "DD023"
    title = "the hosts' clocks agree"

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        self.require(len(ranks.nodes) >= 2, "the job has one host")
        late = [node for node in ranks.nodes if abs(node.skew) >= LIMIT]
        if not late:
            return Passed(f"the clocks of {len(ranks.nodes)} hosts differ by less than {LIMIT:.0f} s")
        first = ranks.nodes[0].host
        how = [
            f"{node.host} is {abs(node.skew):.0f} s {'ahead of' if node.skew > 0 else 'behind'} {first}"
            for node in late
        ]
        return self.warn(
            f"the clocks of hosts differ: {listing(how)}",
            ranks=tuple(rank for node in late for rank in node.ranks),
            about=Kind.HOST.of(*(node.host for node in late)),
        )
