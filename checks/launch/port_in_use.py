import errno
import re

from ddpdoctor.check import Check
from ddpdoctor.group.group_record import GroupRecord
from ddpdoctor.host import Host
from ddpdoctor.host.system import Listener, Process
from ddpdoctor.judge import NotMeasured
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, log_fields
from ddpdoctor.model import Evidence, Finding, Judgement, Kind, Passed, Skipped
from ddpdoctor.text import quote_command

UNPRIVILEGED_PORT_START = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
EPHEMERAL_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
_TAKEN = (
    r"(?i)address already in use|EADDRINUSE|Only one usage of each socket address"
    r"|but another process is utilizing it"
)
_DENIED = r"failed to (?:listen|bind).{0,200}(?:EACCES|[Pp]ermission denied)"
_PORT = re.compile(r"bind to \S+:(\d+)|port:? `?(\d+)|\]:(\d+)")


class PortInUse(Check):
    """The master port is taken, privileged, or inside the ephemeral range.

    What it finds:
        Rank 0 cannot listen on MASTER_PORT: another process has it (named with pid, command and user),
        or only root may have it. A port inside the ephemeral range is free now and may be given to any
        outgoing connection before the job starts.

    Why it matters:
        Rank 0's store binds the port first of all. Where it cannot, torchrun ends with EADDRINUSE, or, when the
        listener is an older job, the new ranks join the wrong store and wait until the rendezvous times out.

    Example:
        A second job on the same node, or a run that was killed and left a worker behind:
            torchrun --nproc-per-node 4 train.py     # port 29500, already taken

    Fix:
        Give the job a port of its own (--master-port 29501), or use --standalone on one node, which takes any
        free port. End the process that holds the port if it is left over.
    """

    code = "DD002"
    title = "the master port is free"
    raises = (_TAKEN,)
    log_words = ("in use", "Only one usage", "EADDRINUSE", "EACCES", "failed to bind")

    def examine_host(self, host: Host) -> Judgement:
        launch = host.launch
        if launch.node_rank != 0:
            return Skipped("rank 0 listens on another node")
        error = host.system.try_bind("", launch.master_port)
        if error == errno.EADDRINUSE and not host.system.listeners(launch.master_port):
            error = host.system.try_bind("", launch.master_port)  # another check tried it at the same moment
        if error == errno.EADDRINUSE:
            port = host.launch.master_port
            owners = host.system.listeners(port)
            known = [owner.process for owner in owners if owner.process]
            free = host.system.free_port()
            return self.fail(
                f"port {port} is taken by {_name(known)}",
                why=f"Rank 0 has to listen on port {port}. While another process does, torchrun ends with "
                "EADDRINUSE, or the ranks join that process's store and wait until the rendezvous times out.",
                fix=f"torchrun --master-port {free} ..., or torchrun --standalone ... on one node"
                + (f"; or end pid {known[0].pid} if it is left over" if known else ""),
                evidence=tuple(Evidence(_describe(owner)) for owner in owners),
                about=Kind.PORT.of(port),
            )
        if error in (errno.EACCES, errno.EPERM):
            return self._privileged(host)
        low, high = _ephemeral_range(host)
        if low <= launch.master_port <= high:
            return self._ephemeral(host, low, high)
        return Passed(f"port {launch.master_port} is free")

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        use = ranks.port
        if use is None or use.during is None:
            raise NotMeasured(ranks.broken or "rank 0's store is on another node")
        if use.during == 0:
            return self._not_held(use.port)
        if use.after:
            return self._not_given_back(use.port)
        return Passed(f"port {use.port} was free before the group, held during it, and free again after it")

    def examine_log(self, log: Log) -> Judgement:
        reason = log.search(_TAKEN) or log.search(_DENIED)
        if reason is None or (log.training and not log.failed):  # training has no port before its group
            return NOT_IN_OUTPUT
        if reason.match.re.pattern == _DENIED:
            return self.fail(
                "the launcher was not allowed to listen on the master port",
                why="Ports below 1024 are for processes with the right to them, which a training has not.",
                fix="torchrun --standalone ... on one node takes any free port; --master-port for one above 1024",
                **log_fields(reason),
            )
        match = _PORT.search(reason.match.string)
        port = next(filter(None, match.groups())) if match else ""
        listener = f"ss -ltnp 'sport = :{port}'" if port else "ss -ltnp"
        return self.fail(
            f"port {port} was taken when the job started"
            if port
            else "the master port was taken when the job started",
            why="Another process had it, mostly another job on the node, a second launcher of this one (one "
            "for each task of srun), or a worker that an earlier run left behind.",
            fix="torchrun --standalone ... on one node, which takes any free port; --master-port for another one\n"
            f"see who has it: {listener}",
            about=Kind.PORT.of(port) if port else (),
            **log_fields(reason),
        )

    def _not_held(self, port: int) -> Finding:
        return self.fail(
            f"port {port} can be bound a second time while the group holds it",
            why="Two jobs could listen on this port at once, and the ranks of one would join the store of "
            "the other. Something between this process and the network changes what bind means.",
            fix="look for a network sandbox or a preloaded library: echo $LD_PRELOAD",
            about=Kind.PORT.of(port),
        )

    def _not_given_back(self, port: int) -> Finding:
        return self.fail(
            f"port {port} was not free again after the group ended",
            why="A process of the group still listens, so that the next job on this node ends with EADDRINUSE.",
            fix=f"see who has it: ss -ltnp 'sport = :{port}'",
            about=Kind.PORT.of(port),
        )

    def _privileged(self, host: Host) -> Finding:
        start = host.system.read_text(UNPRIVILEGED_PORT_START)
        return self.fail(
            f"port {host.launch.master_port} may not be bound by this user",
            why=f"Ports below {(start or '1024').strip()} are reserved for root, so rank 0 cannot listen there.",
            fix=f"torchrun --master-port {host.system.free_port()} ...",
            about=Kind.PORT.of(host.launch.master_port),
        )

    def _ephemeral(self, host: Host, low: int, high: int) -> Finding:
        port = host.launch.master_port
        return self.info(
            f"port {port} lies inside the ephemeral range {low}-{high}",
            why=f"The kernel gives ports {low}-{high} to outgoing connections of any process. One that "
            f"happens to hold {port} when the job starts makes it end with EADDRINUSE, now and then.",
            fix=f"torchrun --master-port {host.system.free_port()} ...",
            about=Kind.PORT.of(host.launch.master_port),
        )


def _ephemeral_range(host: Host) -> tuple[int, int]:
    fields = (host.system.read_text(EPHEMERAL_RANGE) or "").split()
    return (int(fields[0]), int(fields[1])) if len(fields) == 2 else (0, -1)


def _name(known: list[Process]) -> str:
    return f"pid {known[0].pid} ({known[0].user})" if known else "another user's process"


def _describe(owner: Listener) -> str:
    if owner.process is None:
        return f"{owner.address}:{owner.port} has a listener whose process this user may not see"
    process = owner.process
    return f"{owner.address}:{owner.port} is held by pid {process.pid} of {process.user}: " + quote_command(
        process.command
    )
