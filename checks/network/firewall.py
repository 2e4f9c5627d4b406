from ddpdoctor.check import Check
from ddpdoctor.logs.log import Log, log_fields
from ddpdoctor.model import Confidence, Judgement

_NCCL = r"[Cc]onnect(?:ing)? to \[?(?P<address>[\w.:%-]{1,80}?)\]?<(?P<port>\d+)>.{0,60}timed out"
_UNNAMED = r"Call to connect failed ?: Connection timed out"
_GLOO = (
    r"(?:[Gg]loo|pair\.cc).{0,160}timed out connecting"
    r"(?!.{0,30}refused).{0,80}remote=\[(?P<address>(?!127\.)[\w.:%-]+?)\]:(?P<port>\d+)"
)


class Firewall(Check):
    """The rendezvous port is open, and the data ports are not.

    What it finds:
        Ranks that met in the store, and then could not connect to each other: the connection was not refused, it was
        not answered.

    Why it matters:
        NCCL and gloo listen on ports of their own, taken from the ephemeral range, for every connection. A firewall
        that lets through the master port only stops the job after the rendezvous.

    Example:
        NCCL WARN socketStartConnect: Connect to 10.0.0.2<45678> failed : Connection timed out

    Fix:
        Let the nodes of a job reach each other on all ports of the ephemeral range, or on those given to NCCL.
    """

    code = "DD710"
    title = "the data ports are open"
    raises = (_NCCL, _GLOO, _UNNAMED)
    log_words = ("Call to connect failed", "onnect to ", "onnecting to ", "timed out connecting")

    def examine_log(self, log: Log) -> Judgement:
        reason = log.search(_NCCL, _GLOO) or log.reason(_UNNAMED)
        groups = reason.match.groupdict()
        address, port = groups.get("address") or "ADDRESS", groups.get("port") or "PORT"
        return self.fail(
            f"port {port} of {address} did not answer, after the ranks had met"
            if groups
            else "a port for data did not answer",
            why="The rendezvous worked, and this port is one that NCCL or gloo opened for data. No answer at "
            "all, where a closed port would refuse, is what a firewall does.",
            fix=f"on {address}: nc -l {port}; from the other node: nc -vz {address} {port}\n"
            "open the range of /proc/sys/net/ipv4/ip_local_port_range between the nodes, or the security group's",
            confidence=Confidence.LIKELY,
            **log_fields(reason),
        )
