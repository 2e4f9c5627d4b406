from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from ddpdoctor.check import Check, Judgement, NotMeasured, Passed
from ddpdoctor.group.group_record import GroupRecord, Stage
from ddpdoctor.host import Host
from ddpdoctor.host.system import Process
from ddpdoctor.text import age, plural, quote, quote_command

RUN = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")
"""What tells runs apart; the id alone is "none" in every run without a rendezvous backend."""
REAPERS = ("systemd", "init", "tini", "dumb-init", "docker-init", "catatonit", "s6-svscan", "launchd")
"""Programs that adopt the children of processes that ended."""


class StaleProcesses(Check):
    """Workers of an earlier run are still alive, although their launcher has ended.

    What it finds:
        Processes that torchrun started (its run id is in their environment) and whose launcher has ended, with the
        GPUs that they use. Workers of a running launcher are not stale, whoever started it. A process that only
        occupies the master port is reported as DD002.

    Why it matters:
        torchrun's workers have their own sessions, so kill -9 of the launcher leaves them running. They keep memory,
        GPUs, CPU time and ports: a new job runs out of memory, is slow, or joins the old store.

    Example:
        Ending the launcher only:
            kill -9 $(pgrep -f torchrun)             # the workers continue, adopted by init

    Fix:
        End them by their pids, which the finding lists:
            kill 4711 4712
        Next time, send SIGTERM or Ctrl-C to torchrun, which stops its workers.
    """

    code = "DD010"
    title = "no worker of an earlier run is left"

    def examine_host(self, host: Host) -> Judgement:
        gpus = _gpus_by_pid(host)
        left = [process for process in _orphans(host.processes) if not _only_holds_port(host, process, gpus)]
        if not left:
            return Passed("no worker of an earlier run is left")
        holders = [process for process in left if process.pid in gpus]
        pids = " ".join(str(process.pid) for process in left)
        held = sorted({index for process in holders for index in gpus[process.pid]})
        verb = "are" if len(left) > 1 else "is"
        report = self.fail if holders else self.warn
        return report(
            f"{plural(len(left), 'process')} of a run whose launcher is gone {verb} still alive"
            + (f" on GPU {', '.join(map(str, held))}" if holders else ""),
            fix=f"kill {pids}     # then kill -9 those that are still there",
            evidence=[_describe(process, gpus) for process in left],
        )

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        if ranks.stage is not Stage.END:
            raise NotMeasured(ranks.broken or "the group did not end")
        if not ranks.left_behind:
            return Passed("the live group left no process")
        return self.warn(
            f"the live group left {plural(len(ranks.left_behind), 'process')} behind",
            why="Something that every Python process here loads starts processes that outlive it. "
            "After a job they hold ports and memory. ddpdoctor killed those of the live group.",
            fix="look for it: sitecustomize, a .pth file in site-packages, a profiler or an agent",
            evidence=[process for process in ranks.left_behind],
        )


def _orphans(processes: Sequence[Process]) -> Iterator[Process]:
    """Workers without a living launcher in their ancestry, of runs of which no worker has one."""
    by_pid = {process.pid: process for process in processes}
    workers = [process for process in processes if process.environ.get("TORCHELASTIC_RUN_ID")]
    alive = {_run(process) for process in workers if not _adopted(process, by_pid)}
    adopted = {_run(process) for process in workers if _adopted(process, by_pid)} - alive
    yield from (process for process in workers if _run(process) in adopted)


def _run(process: Process) -> tuple[str | None, ...]:
    return tuple(process.environ.get(name) for name in RUN)


def _adopted(process: Process, by_pid: Mapping[int, Process]) -> bool:
    """Whether init, and no launcher, is the parent of the first process of this run above this one."""
    visited = {process.pid}
    parent = by_pid.get(process.parent)
    while parent and parent.pid not in visited and _run(parent) == _run(process):
        visited.add(parent.pid)
        process, parent = parent, by_pid.get(parent.parent)
    if parent is None:
        return process.parent == 1
    name = PurePosixPath(parent.command[0]).name if parent.command else ""
    # In a container torchrun itself may be process 1, and every other program may be a launcher.
    is_python = any("python" in PurePosixPath(word).name or "torchrun" in word for word in parent.command[:2])
    return name in REAPERS or (parent.pid == 1 and not is_python)


def _gpus_by_pid(host: Host) -> dict[int, list[int]]:
    held: dict[int, list[int]] = {}
    for gpu in host.gpus.devices:
        for pid in gpu.pids:
            held.setdefault(pid, []).append(gpu.index)
    return held


def _only_holds_port(host: Host, process: Process, gpus: Mapping[int, list[int]]) -> bool:
    """Whether the check of the master port names this process already."""
    if not host.launch.listens_on_master_port:
        return False
    listeners = host.system.listeners(host.launch.master_port)
    return process.pid not in gpus and any(it.process and it.process.pid == process.pid for it in listeners)


def _describe(process: Process, gpus: Mapping[int, list[int]]) -> str:
    rank = process.environ.get("RANK", "")
    held = f", on GPU {', '.join(map(str, gpus[process.pid]))}" if process.pid in gpus else ""
    return (
        f"pid {process.pid} of {quote(process.user)[1:-1] or 'an unknown user'}"
        + (f", rank {rank}" if rank.isdigit() else "")
        + f"{held}, started {age(process.age)} ago: {quote_command(process.command)}"
    )
