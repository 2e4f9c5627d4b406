from collections.abc import Iterable, Iterator

from ddpdoctor.check import Check, Finding, Findings, Judgement, Kind, Passed, Role
from ddpdoctor.group.group_record import GroupRecord
from ddpdoctor.logs.log import Log, log_fields
from ddpdoctor.text import plural, ranks_phrase
from ddpdoctor.trace import LostHost, Trace

_OF_HOST = (
    r"Node failure on (?P<host>[\w.,\[\]-]+)",
    r"Remote daemon: .{1,60} on node (?P<host>[\w.-]+)",
    r"node (?P<host>[\w.-]+) is (?:shut|shutting) down",
)
_OF_ANY = (
    r"DUE TO NODE FAILURE",
    r"NodeNotReady|Node is not ready|NodeLost|deleting pod for node|imminent node shutdown",
)
"""Of Slurm, of Open MPI's daemons, of Kubernetes; first what names the host."""


class HostLost(Check):
    """A host of the job was lost while the job ran.

    What it finds:
        In a check of several hosts: the host whose command ended without a message, or did not answer for some
        seconds. The command on each host has a connection to that on the host of rank 0 as long as it runs. In job
        output, a host that Slurm, Open MPI's daemons or Kubernetes have lost. Under Ray Train, a host that Ray does
        not reach any more. Where torchrun started an elastic job anew without the host, this is information.

    Why it matters:
        The ranks of the other hosts wait in their next collective until the timeout, half an hour with gloo and ten
        minutes with NCCL, or report connections that were closed. Neither names the host. torchrun starts an elastic
        job anew once a rank fails, and one that waits fails when that timeout has passed.

    Example:
        One of four hosts is preempted or rebooted, its link goes down, or the memory of its container runs out so
        that everything in it is killed.

    Fix:
        Look at that host: whether it is up, what its kernel logged, and what the scheduler did with it:
            ssh HOST 'uptime; dmesg -T | tail'
            sacct -j JOB --format JobID,NodeList,State,ExitCode
    """

    code = "DD315"
    title = "every host stays until the end"
    log_words = (
        "Node failure", "NODE FAILURE", "Remote daemon", "NodeNotReady", "Node is not ready", "NodeLost",
        "deleting pod for node", "shut down", "shutting down", "node shutdown",
    )  # fmt: skip

    def examine_group(self, ranks: GroupRecord) -> Findings:
        self.require(ranks.launch.nnodes != 1, "the job has one host")
        facts = {node.node_rank: node for node in ranks.nodes}
        yield from self._lost(LostHost(facts[i].host, facts[i].ranks, why) for i, why in ranks.lost.items())
        yield Passed(f"all {len(ranks.nodes)} hosts stayed until the end")

    def examine_run(self, trace: Trace) -> Findings:
        hosts = {rank.recording.host for rank in trace.ranks if rank.recording}
        self.require(trace.lost or len(hosts) >= 2, "the job has one host")
        left = trace.restarted_without
        for host in left:
            yield self.info(
                f"host {host.host} ({ranks_phrase(host.ranks)}) was lost, and the job restarted without it: "
                f"{host.reason}",
                why="torchrun started the job anew on the hosts that were left, with "
                f"{plural(len(trace.ranks), 'rank')}. Each rank began where the script resumes from its "
                "last checkpoint.",
                about=Kind.HOST.of(host.host),
            )
        yield from self._lost(host for host in trace.lost if host not in left)
        yield Passed(f"all {len(hosts)} hosts stayed until the end")

    def examine_log(self, log: Log) -> Judgement:
        reason = log.search(*_OF_HOST) or log.reason(*_OF_ANY)
        host = reason.match.groupdict().get("host") or ""
        return self.fail(
            f"host {host} was lost while the job ran" if host else "a host was lost while the job ran",
            about=Kind.HOST.of(host) if host else (),
            **log_fields(reason, role=Role.SYSTEM),
        )

    def _lost(self, lost: Iterable[LostHost]) -> Iterator[Finding]:
        for host in lost:
            yield self.fail(
                f"host {host.host} ({ranks_phrase(host.ranks)}) was lost: {host.reason}",
                ranks=host.ranks,
                about=Kind.HOST.of(host.host),
            )
