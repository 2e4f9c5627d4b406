import ipaddress
from collections.abc import Mapping

from ddpdoctor.check import Check
from ddpdoctor.group.group_record import GroupRecord, Stage
from ddpdoctor.host import Host
from ddpdoctor.judge import NotMeasured
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, Reason, log_fields
from ddpdoctor.model import Confidence, Evidence, Finding, Judgement, Passed
from ddpdoctor.outliers import by_state
from ddpdoctor.recorder.events.process import GroupEvent
from ddpdoctor.redact import quote, show_value
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import RankTrace, Trace

_CLIENTS = r"Timed out after .{1,40} waiting for clients\. (?P<came>\d+)/(?P<all>\d+) clients joined"
_BARRIER = (
    r"store.based barrier.{0,200}world_size=(?P<all>\d+), (?:worker_count|num_workers_joined)=(?P<came>\d+)"
)
_TIMED_OUT = (
    r"(?:timed out after .{1,40} while trying to connect to|failed to connect to any network address of) "
    r"\((?P<address>[^\s,)]+), (?P<port>\d+)\)"
)
_STORE_REFUSED = (
    r"connect\(\) timed out|connection to the C10d store has failed|RendezvousTimeoutError"
    r"|TCPStore.{0,80}(?:Connection refused|timed out)"
)
_BARE = r"^RuntimeError: (?:No route to host|Network is unreachable|Connection timed out|Wait timeout)$"
"""All that the store of torch 1 and a file of gloo's say."""


class RendezvousUnreachable(Check):
    """Not all ranks joined the rendezvous.

    What it finds:
        MASTER_ADDR does not resolve, is a loopback address in a job of several nodes, or one of an interface that
        is down; or the address of the rendezvous is refused, or does not answer in time; or not every rank
        joined: which did, and what the others said.

    Why it matters:
        Every rank connects to rank 0's store before anything else. One rank that cannot holds all of them until
        the rendezvous times out, and the message then says how many came, and not which.

    Example:
        A host name that only the login node knows:
            MASTER_ADDR=login-1 torchrun --nnodes 2 ... train.py

    Fix:
        Give an address of node 0 that every node reaches: --master-addr 10.0.0.1. On one node use --standalone,
        or 127.0.0.1.
    """

    code = "DD004"
    title = "all ranks join the rendezvous"
    breaks_group = True
    explained_by = ("DD005",)
    raises = (_CLIENTS, _TIMED_OUT, _STORE_REFUSED, _BARRIER, _BARE)
    log_words = (
        "failed to connect to any", "clients joined", "store based barrier", "connect() timed out",
        "C10d store", "RendezvousTimeoutError",
    )  # fmt: skip

    def examine_host(self, host: Host) -> Judgement:
        exported = None if "master_addr" in host.launch.explicit else host.environ.get("MASTER_ADDR")
        name, address = ("MASTER_ADDR", exported) if exported else ("--master-addr", host.launch.master_addr)
        shown = f"{name} {show_value('MASTER_ADDR', address)}"
        addresses = host.system.resolve(address)
        if not addresses:
            return self.fail(
                f"{shown} does not resolve to an address",
                why="Every rank looks this name up to find rank 0's store, again and again, until the "
                "rendezvous times out.",
                fix="on one node: unset MASTER_ADDR\non several: torchrun --master-addr ADDRESS ..., an "
                f"address of node 0 that every node finds: getent hosts {quote(address)}",
            )
        down = host.loopback_down
        if down and any(ipaddress.ip_address(one).is_loopback for one in addresses):
            return self._down(down, shown)
        if host.launch.nnodes > 1 and all(ipaddress.ip_address(one).is_loopback for one in addresses):
            return self._loopback(shown, host.launch.nnodes)
        return Passed(
            f"{shown} resolves to {addresses[0]}" if address != addresses[0] else f"{shown} is an address"
        )

    def _down(self, interface: str, shown: str) -> Finding:
        return self.fail(
            f"loopback interface {quote(interface)} is down, so {shown} leads nowhere",
            why="The ranks of one node meet at a loopback address. Without the interface every connection to "
            "it is refused or unreachable, and they wait until the rendezvous times out.",
            fix=f"ip link set {interface} up    # as root, in the container or network namespace of the job",
        )

    def _loopback(self, shown: str, nodes: int) -> Finding:
        return self.fail(
            f"{shown} is a loopback address in a job of {nodes} nodes",
            why="On every node but the first a loopback address leads to that node itself, where no store "
            "listens, so its ranks wait until the rendezvous times out.",
            fix="torchrun --master-addr ADDRESS ... with an address of node 0 that the other nodes reach",
        )

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        if ranks.stage is Stage.IMPORT or ranks.unwritable:
            raise NotMeasured(ranks.broken or "torch was not imported")
        if ranks.stage is not Stage.JOIN:
            return Passed(
                f"all {ranks.launch.world_size} ranks met on port {ranks.port.port if ranks.port else '?'}"
            )
        joined = [rank.rank for rank in ranks.ranks if rank.joined]
        missing = [rank.rank for rank in ranks.ranks if not rank.joined]
        return self.fail(
            f"{ranks_phrase(missing)} did not join the process group",
            why=f"{ranks.broken}. A group begins when all of its {ranks.launch.world_size} ranks have come.",
            fix=f"see whether every node reaches {quote(ranks.launch.master_addr)}: "
            f"nc -vz {ranks.launch.master_addr} {ranks.launch.master_port}",
            ranks=tuple(missing),
            evidence=(
                *((Evidence("joined", tuple(joined)),) if joined else ()),
                *(
                    Evidence(_last_line(rank.failure.message), (rank.rank,))
                    for rank in ranks.ranks
                    if rank.failure
                ),
            ),
        )

    def examine_run(self, trace: Trace) -> Judgement:
        waiting = {rank.rank: event for rank in trace.ranks if (event := _dials(rank))}
        sizes = {_number(event, "world_size") for event in waiting.values()}
        if trace.timed_out and not trace.out_of_time and sizes == {len(waiting)}:
            return self._none_joined(waiting)
        if trace.broken:
            raise NotMeasured(trace.broken)
        return Passed(f"{ranks_phrase(trace.recordings())} met")

    def _none_joined(self, waiting: Mapping[int, GroupEvent]) -> Finding:
        places = {rank: _place(event) for rank, event in waiting.items()}
        first, *others = dict.fromkeys(places.values())
        return self.fail(
            f"{ranks_phrase(waiting)} connect to {1 + len(others)} different addresses, and none reaches the store"
            if others
            else f"{ranks_phrase(waiting)} are there, and none of them reaches the store at {first}",
            why="Rank 0 serves the store on its own machine, and every rank, rank 0 too, dials the address "
            "that it was given. That one leads elsewhere, or another program answers there, so "
            "init_process_group waits until its timeout, 30 minutes.",
            fix='os.environ["MASTER_ADDR"] = "127.0.0.1"    # on one node; on several, an address of node 0',
            ranks=tuple(waiting),
            where=next(iter(waiting.values())).at,
            evidence=by_state(places),
        )

    def examine_log(self, log: Log) -> Judgement:
        reason = log.search(_CLIENTS, _BARRIER)
        if reason and int(reason.match["came"]) < int(reason.match["all"]):
            came, expected = reason.match["came"], reason.match["all"]
            return self.fail(
                f"{came} of {expected} ranks joined the store before the time limit",
                why="The store tells how many came, and not which. The others never started, are still "
                "starting, or cannot reach it: their own output says why, and this one cannot.",
                fix="look at the output of the missing ranks: did their launch fail, does their node run, is "
                "a process of an earlier run still there? From their nodes: nc -vz $MASTER_ADDR $MASTER_PORT",
                **log_fields(reason),
            )
        reason = log.search(_TIMED_OUT) or log.search(_STORE_REFUSED, _BARE)
        return self._told_unreachable(reason) if reason else NOT_IN_OUTPUT

    def _told_unreachable(self, reason: Reason) -> Finding:
        groups = reason.match.groupdict()
        address = groups.get("address") or ""
        return self.fail(
            f"no store answered at {address} port {groups['port']}"
            if address
            else "the rendezvous did not answer in time",
            why="Ranks dial MASTER_ADDR:MASTER_PORT, where rank 0 listens. Either that is not rank 0's "
            "address, or rank 0 was not there: not started, failed before, or on a node that does not know "
            "the address as its own.",
            fix="--master-addr has to be the address of node 0, as the other nodes reach it; on one node use "
            "--standalone\n"
            f"from another node: nc -vz {address or 'MASTER_ADDR'} {groups.get('port') or 'MASTER_PORT'}; on "
            "node 0: getent hosts $(hostname)",
            confidence=Confidence.LIKELY,
            **log_fields(reason),
        )


def _dials(rank: RankTrace) -> GroupEvent | None:
    """Its call of init_process_group, where it was still looking for the store when the run was stopped."""
    if not any(frame.file.endswith("torch/distributed/rendezvous.py") for frame in rank.stack):
        return None
    groups = rank.recording.groups if rank.recording else ()
    return next((event for event in groups[-1:] if event.action == "joining"), None)


def _number(event: GroupEvent, name: str) -> int | None:
    """What a rank joined with: as an argument, or through the environment."""
    given = event.arguments.get(name, -1)
    text = event.environ.get(name.upper(), "") if given in (-1, None) else str(given)
    return int(text) if text.isdigit() else None


def _place(event: GroupEvent) -> str:
    """Where the rank was told to meet the others."""
    method = str(event.arguments.get("init_method") or "env://")
    if not method.startswith("env://"):
        return show_value("init_method", method)
    address, port = (event.environ.get(name, "?") for name in ("MASTER_ADDR", "MASTER_PORT"))
    return f"{show_value('MASTER_ADDR', address)} port {show_value('MASTER_PORT', port)[1:-1]}"


def _last_line(message: str) -> str:
    return next(iter(reversed(message.strip().splitlines())), "no message")
