from ddpdoctor.check import Check, Confidence, Judgement, Kind, Passed, Skipped
from ddpdoctor.group.group_record import GroupRecord, Stage
from ddpdoctor.logs.log import Log, log_fields
from ddpdoctor.nodes.links import NO_ANSWER
from ddpdoctor.text import listing, plural

_NCCL = r"[Cc]onnect(?:ing)? to \[?(?P<address>[\w.:%-]{1,80}?)\]?<(?P<port>\d+)>.{0,60}timed out"
_UNNAMED = r"Call to connect failed ?: Connection timed out"
_GLOO = (
    r"(?:[Gg]loo|pair\.cc).{0,160}timed out connecting"
    r"(?!.{0,30}refused).{0,80}remote=\[(?P<address>(?!127\.)[\w.:%-]+?)\]:(?P<port>\d+)"
)


class Firewall(Check):
    """The rendezvous port is open, and the data ports are not.

    What it finds:
        Ranks that joined the rendezvous and then could not connect to each other: the connection was not refused, but
        not answered. In a check of several hosts, each host also tries a port of the ephemeral range of the others, in
        both directions.

    Why it matters:
        The rendezvous uses the master port. For data, NCCL and gloo listen on further ports of the ephemeral range, and
        a closed port would refuse the connection: no answer at all is what a firewall causes.

    Example:
        NCCL WARN socketStartConnect: Connect to 10.0.0.2<45678> failed : Connection timed out

    Fix:
        Open the ephemeral range between the nodes, in the firewall and in the security group:
            cat /proc/sys/net/ipv4/ip_local_port_range
    """

    code = "DD710"
    title = "the data ports are open"
    raises = (_NCCL, _GLOO, _UNNAMED)

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        if not ranks.links:
            return Skipped("the job has one host" if ranks.launch.nnodes == 1 else "not all hosts joined")
        names = ranks.node_names
        closed = [link for link in ranks.links if link.error == NO_ANSWER]
        if not closed:
            return Passed(f"{plural(len(ranks.links), 'connection')} between the hosts answered")
        # Where the ranks met all the same, they use another network.
        report = self.fail if ranks.broken and ranks.stage is Stage.JOIN else self.info
        pairs = [f"{names[link.source]} cannot reach {names[link.target]}" for link in closed]
        return report(
            f"{listing(pairs)} on the ports for data, although the master port is open",
            evidence=[
                f"{names[link.source]} to {names[link.target]}: port {link.port} of {link.address}: {link.error}"
                for link in closed
            ],
            about=Kind.HOST.of(*(names[link.target] for link in closed)),
        )

    def examine_log(self, log: Log) -> Judgement:
        reason = log.search(_NCCL, _GLOO) or log.reason(_UNNAMED)
        groups = reason.match.groupdict()
        address, port = groups.get("address") or "ADDRESS", groups.get("port") or "PORT"
        return self.fail(
            f"port {port} of {address} did not answer after the rendezvous"
            if groups
            else "a port for data did not answer",
            fix=f"to try the path, on {address}: nc -l {port}; from the other node: nc -vz {address} {port}\n"
            "open the range of /proc/sys/net/ipv4/ip_local_port_range between the nodes, also in the security group",
            confidence=Confidence.LIKELY,
            **log_fields(reason),
        )
