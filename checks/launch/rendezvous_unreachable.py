import ipaddress
from collections.abc import Iterator

from ddpdoctor.blame.frames import show
from ddpdoctor.check import Check, Confidence, Evidence, Finding, Judgement, NotMeasured, Passed, Role
from ddpdoctor.group.group_record import GroupRecord, Stage
from ddpdoctor.host import Host
from ddpdoctor.logs.log import Log, Reason, log_fields
from ddpdoctor.recorder.events.process import GroupEvent
from ddpdoctor.text import quote, ranks_phrase, show_value
from ddpdoctor.trace import RankTrace, Trace
from ddpdoctor.trace.joint_training import joined_with, store_place

_CLIENTS = r"Timed out after .{1,40} waiting for clients\. (?P<came>\d+)/(?P<all>\d+) clients joined"
_BARRIER = (
    r"store.based barrier.{0,200}world_size=(?P<all>\d+), (?:worker_count|num_workers_joined)=(?P<came>\d+)"
)
_TIMED_OUT = (
    r"(?:timed out after .{1,40} while trying to connect to|failed to connect to any network address of) "
    r"\(?(?P<address>[^\s,)]+?)(?:, |:)(?P<port>\d+)(?=\)|\.?(?:\s|$))"
)
_STORE_REFUSED = (
    r"connect\(\) timed out|EtcdConnectionFailed|connection to the C10d store has failed|RendezvousTimeoutError"
    r"|TCPStore.{0,80}(?:Connection refused|timed out)"
)
_WAS_LOST = r"has failed to send a keep-alive heartbeat to the rendezvous"
"""By the launcher of another host than the one that serves the rendezvous; in a job that ends well, too."""
_BARE = r"^RuntimeError: (?:No route to host|Network is unreachable|Connection timed out|Wait timeout)$"
"""The whole message of torch 1's store, and of gloo's."""


class RendezvousUnreachable(Check):
    """Not all ranks joined the rendezvous.

    What it finds:
        MASTER_ADDR does not resolve, is a loopback address in a job of several nodes, or belongs to an interface that
        is down; or the rendezvous refuses connections, or does not answer in time; or not every rank joined: which
        ones did, and the errors of the others.

    Why it matters:
        Every rank connects to rank 0's store at MASTER_ADDR:MASTER_PORT first. If one rank cannot, because the address
        is not that of rank 0, or rank 0 did not start or failed, all of them wait until the rendezvous times out. The
        error then contains how many ranks joined, but not which.

    Example:
        A hostname that only the login node resolves:
            MASTER_ADDR=login-1 torchrun --nnodes 2 ... train.py

    Fix:
        Give an address of node 0 that every node reaches; on one node use --standalone, or 127.0.0.1:
            torchrun --master-addr 10.0.0.1 ...
        From another node, see whether rank 0 listens:
            nc -vz $MASTER_ADDR $MASTER_PORT
    """

    code = "DD004"
    title = "all ranks join the rendezvous"
    breaks_group = True
    explained_by = ("DD005", "DD011", "DD315", "DD709", "DD710")
    raises = (_CLIENTS, _TIMED_OUT, _STORE_REFUSED, _BARRIER, _BARE)
    log_words = ("keep-alive heartbeat",)

    def examine_host(self, host: Host) -> Judgement:
        exported = None if "master_addr" in host.launch.explicit else host.environ.get("MASTER_ADDR")
        name, address = ("MASTER_ADDR", exported) if exported else ("--master-addr", host.launch.master_addr)
        shown = f"{name} {show_value('MASTER_ADDR', address)}"
        addresses = host.system.resolve(address)
        if not addresses:
            return self.fail(
                f"{shown} does not resolve to an address",
                fix="on one node: unset MASTER_ADDR\non several: torchrun --master-addr ADDRESS ..., an "
                f"address of node 0 that every node resolves: getent hosts {quote(address)}",
            )
        loopback = [ipaddress.ip_address(resolved).is_loopback for resolved in addresses]
        down = host.loopback_down
        if down and any(loopback):
            return self.fail(
                f"loopback interface {quote(down)} is down, so {shown} is unreachable",
                why="The ranks of one node connect to a loopback address. While the interface is down, every "
                "connection fails, and they wait until the rendezvous times out.",
                fix=f"ip link set {down} up    # as root, in the container or network namespace of the job",
            )
        if host.launch.nnodes > 1 and all(loopback):
            return self.fail(f"{shown} is a loopback address in a job of {host.launch.nnodes} nodes")
        resolved = "is an address" if address == addresses[0] else f"resolves to {addresses[0]}"
        return Passed(f"{shown} {resolved}")

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        if ranks.absent:
            return self._never_came(ranks)
        if ranks.stage is Stage.IMPORT or ranks.unwritable:
            raise NotMeasured(ranks.broken or "torch was not imported")
        if ranks.stage is not Stage.JOIN:
            port = ranks.port or "?"
            return Passed(f"all {ranks.launch.world_size} ranks met on port {port}")
        joined = tuple(rank.rank for rank in ranks.ranks if rank.joined)
        missing = tuple(rank.rank for rank in ranks.ranks if not rank.joined)
        failures = {rank.rank: rank.failure.message for rank in ranks.ranks if rank.failure}
        return self.fail(
            f"{ranks_phrase(missing)} did not join the process group",
            why=f"{ranks.broken}. init_process_group returns when all {ranks.launch.world_size} ranks have joined.",
            fix=f"nc -vz {ranks.launch.master_addr} {ranks.launch.master_port}     # from every node",
            ranks=missing,
            evidence=(
                *((Evidence("joined", joined),) if joined else ()),
                *(Evidence(_last_line(message), (rank,)) for rank, message in failures.items()),
                *_where_they_wait(ranks),
            ),
        )

    def _never_came(self, ranks: GroupRecord) -> Finding:
        launch, place = ranks.launch, f"{ranks.launch.master_addr} {ranks.launch.master_port}"
        came = tuple(Evidence(f"{it.host} joined, node {it.node_rank}", it.ranks) for it in ranks.nodes)
        missing = tuple(
            rank for node in ranks.absent for rank in range(node * launch.nproc, (node + 1) * launch.nproc)
        )
        return self.fail(
            f"{ranks.broken} ({ranks_phrase(missing)})",
            why=f"The commands on all {launch.nnodes} hosts meet at node 0 before the ranks start, "
            "and a job waits there in the same way. This one was not started, does not reach "
            "that address, or has another --node-rank.",
            fix="start the same command on every host, with --node-rank 0 on the host of that "
            f"address\nnc -vz {place}     # from the missing host, while the others wait",
            ranks=missing,
            evidence=came,
        )

    def examine_run(self, trace: Trace) -> Judgement:
        waiting = {rank.rank: event for rank in trace.ranks if (event := _connecting(rank))}
        sizes = {joined_with(event, "world_size") for event in waiting.values()}
        if trace.timed_out and not trace.out_of_time and sizes == {len(waiting)}:
            places = {rank: store_place(event) for rank, event in waiting.items()}
            first, *others = dict.fromkeys(places.values())
            return self.fail(
                f"{ranks_phrase(waiting)} connect to {1 + len(others)} different addresses, and none reaches the store"
                if others
                else f"{ranks_phrase(waiting)} started, and none of them reaches the store at {first}",
                why="Rank 0 serves the store on its host, and every rank, also rank 0, connects to the "
                "given address. That address is not rank 0's host, or another program listens "
                "there, so init_process_group waits until its timeout, 30 minutes.",
                where=next(iter(waiting.values())).at,
                evidence=places,
            )
        trace.require_end()
        return Passed(f"{ranks_phrase(trace.recordings())} met")

    def examine_log(self, log: Log) -> Judgement:
        reason = log.search(_CLIENTS, _BARRIER)
        if reason and int(reason.match["came"]) < int(reason.match["all"]) and not _went_on(log, reason):
            came = f"{reason.match['came']} of {reason.match['all']}"
            return self.fail(f"{came} ranks joined the store before the time limit", **log_fields(reason))
        reason = log.search(_TIMED_OUT) or log.reason(_STORE_REFUSED, _BARE)
        if reason.match.re.pattern == _STORE_REFUSED and (beat := log.first(_WAS_LOST)):
            details = log_fields(reason, beat, role=Role.MESSENGER)
            return self.fail(
                "the rendezvous was lost while the job ran: the launcher that serves it ended",
                why="torchrun on the host of --rdzv-endpoint serves the rendezvous. It ended, was killed, or its host "
                "cannot be reached any more; the launchers of the other hosts only report that.",
                fix="read the output of torchrun on that host first: what failed there is the cause\n"
                "if it has none, check the host: uptime; dmesg -T | tail",
                **details,
            )
        groups = reason.match.groupdict()
        headline = "the rendezvous did not answer in time"
        if groups.get("address"):
            headline = f"no store answered at {groups['address']} port {groups['port']}"
        return self.fail(headline, confidence=Confidence.LIKELY, **log_fields(reason))


def _went_on(log: Log, reason: Reason) -> bool:
    """Whether ranks were only being waited for, and the output goes on."""
    lines = log.find(_BARRIER)
    at_end = bool(lines) and log.last is not None and log.last.position == lines[-1].position
    return reason.of_an_attempt and not (log.failed or log.hung or at_end)


def _connecting(rank: RankTrace) -> GroupEvent | None:
    """Its call of init_process_group, where it still connected to the store when the run was stopped."""
    if not any(frame.file.endswith("torch/distributed/rendezvous.py") for frame in rank.stack):
        return None
    groups = rank.recording.groups if rank.recording else ()
    return next((event for event in groups[-1:] if event.action == "joining"), None)


def _where_they_wait(ranks: GroupRecord) -> Iterator[Evidence]:
    """The stacks of the ranks that have not joined, and which processes never said that they run."""
    missing = [rank for rank in ranks.ranks if not rank.joined]
    if silent := tuple(rank.rank for rank in missing if not rank.pid):
        yield Evidence("its process has not begun to run", silent)
    if stacks := {rank.rank: rank.stack for rank in missing if rank.stack}:
        yield Evidence(show(stacks, "stacks"))


def _last_line(message: str) -> str:
    return next(iter(reversed(message.strip().splitlines())), "no message")
