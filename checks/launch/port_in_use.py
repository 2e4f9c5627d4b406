import errno
import re
from collections.abc import Sequence

from ddpdoctor.check import Check, Judgement, Kind, Passed, Skipped
from ddpdoctor.host import Host
from ddpdoctor.host.system import Listener
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, log_fields
from ddpdoctor.text import quote_command

UNPRIVILEGED_PORT_START = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
EPHEMERAL_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
_TAKEN = (
    r"(?i)address already in use|EADDRINUSE|Only one usage of each socket address"
    r"|but another process is utilizing it"
)
_NOT_LISTENING = r"server socket has failed to listen on any local network address"
_DENIED = r"failed to (?:listen|bind).{0,200}(?:EACCES|[Pp]ermission denied)"
_PORT = re.compile(r"bind to \S+:(\d+)|port:? `?(\d+)|\]:(\d+)")


class PortInUse(Check):
    """The master port is taken, privileged, or inside the ephemeral range.

    What it finds:
        Rank 0 cannot listen on the master port of this launch: another process uses it (reported with pid, command
        and user), or only root may use it. A port inside the ephemeral range is free now, and the kernel may give it
        to any outgoing connection before the job starts. On one node without --master-port, ddpdoctor lets torchrun
        take a free port, so no port is judged; a taken port that MASTER_PORT names is then information.

    Why it matters:
        Rank 0's store has to listen on the port. If another process does, mostly another job on the node, a second
        launcher of this job (one for each task of srun) or a worker of an earlier run, torchrun fails with
        EADDRINUSE, or the ranks join that process's store and wait until the rendezvous times out.

    Example:
        A second job on the same node, or a worker of a run that was killed:
            torchrun --nproc-per-node 4 train.py     # port 29500, already taken

    Fix:
        On one node, let torchrun choose a free port; on several, use another one:
            torchrun --standalone ...
            torchrun --master-port 29501 ...
        End the process that uses the port if it is left over:
            ss -ltnp     # shows the process of each port
    """

    code = "DD002"
    title = "the master port is free"
    raises = (_TAKEN,)
    log_words = ("in use", "Only one usage", "EADDRINUSE", "EACCES", "failed to bind")

    def examine_host(self, host: Host) -> Judgement:
        port, system = host.launch.master_port, host.system
        self.require(host.launch.node_rank == 0, "rank 0 listens on another node")
        if not host.launch.listens_on_master_port:
            return self._named_by_variable(host)
        error = system.try_bind("", port)
        if error == errno.EADDRINUSE and not system.listeners(port):
            error = system.try_bind("", port)  # another check tried it at the same moment
        if error == errno.EADDRINUSE:
            owners = system.listeners(port)
            known = [owner.process for owner in owners if owner.process]
            return self.fail(
                f"port {port} is taken by {_name(owners)}",
                fix=f"torchrun --master-port {system.free_port()} ..., or torchrun --standalone ... on one node"
                + (f"; or end pid {known[0].pid} if it is left over" if known else ""),
                evidence=[_describe(owner) for owner in owners],
                about=Kind.PORT.of(port),
            )
        about, fix = Kind.PORT.of(port), f"torchrun --master-port {system.free_port()} ..."
        if error in (errno.EACCES, errno.EPERM):
            start = (system.read_text(UNPRIVILEGED_PORT_START) or "1024").strip()
            why = f"Ports below {start} are reserved for root, so rank 0 cannot listen there."
            return self.fail(f"port {port} may not be bound by this user", why=why, fix=fix, about=about)
        low, high = _ephemeral_range(host)
        if low <= port <= high:
            return self.info(
                f"port {port} lies inside the ephemeral range {low}-{high}",
                why=f"The kernel gives ports {low}-{high} to outgoing connections of any process. If one of them uses "
                f"{port} when the job starts, the job fails with EADDRINUSE.",
                fix=fix,
                about=about,
            )
        return Passed(f"port {port} is free")

    def _named_by_variable(self, host: Host) -> Judgement:
        """Of a port that the launch does not use, or may not use, at most that a variable names one in vain."""
        launch, system = host.launch, host.system
        why = "the launch line chooses the port" if launch.by_launch_line else "the launch takes a free port"
        named = system.environ.get("MASTER_PORT") == str(launch.master_port)
        owners = system.listeners(launch.master_port) if named else ()
        if not owners:
            return Skipped(why)
        return self.info(
            f"port {launch.master_port}, which MASTER_PORT names, is taken by {_name(owners)}",
            why=f"A launch that reads MASTER_PORT fails with EADDRINUSE. Here {why}.",
            fix="unset MASTER_PORT",
            evidence=[_describe(owner) for owner in owners],
            about=Kind.PORT.of(launch.master_port),
        )

    def examine_log(self, log: Log) -> Judgement:
        reason = (log.search(_TAKEN) or log.reason(_DENIED)).confirmed_by(log.search(_NOT_LISTENING))
        if (log.training or reason.of_an_attempt) and not log.failed:  # training has no port before its group
            return NOT_IN_OUTPUT
        if reason.match.re.pattern == _DENIED:
            return self.fail(
                "the launcher was not allowed to listen on the master port",
                why="Ports below 1024 are reserved for root.",
                fix="torchrun --standalone ... uses any free port on one node; else --master-port above 1024",
                **log_fields(reason),
            )
        match = _PORT.search(reason.match.string)
        port = next(filter(None, match.groups())) if match else ""
        return self.fail(
            f"{f'port {port}' if port else 'the master port'} was taken when the job started",
            about=Kind.PORT.of(port) if port else (),
            **log_fields(reason),
        )


def _ephemeral_range(host: Host) -> tuple[int, int]:
    fields = (host.system.read_text(EPHEMERAL_RANGE) or "").split()
    return (int(fields[0]), int(fields[1])) if len(fields) == 2 else (0, -1)


def _name(owners: Sequence[Listener]) -> str:
    known = [owner.process for owner in owners if owner.process]
    return f"pid {known[0].pid} ({known[0].user})" if known else "another user's process"


def _describe(owner: Listener) -> str:
    if owner.process is None:
        return f"{owner.address}:{owner.port} has a listener whose process this user may not see"
    process = owner.process
    held = f"{owner.address}:{owner.port} is held by pid {process.pid} of {process.user}"
    return f"{held}: {quote_command(process.command)}"
