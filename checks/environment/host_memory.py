import signal
from typing import Any

from ddpdoctor.check import Check
from ddpdoctor.host import Host
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, log_fields
from ddpdoctor.logs.secondary_errors import first_death
from ddpdoctor.model import Confidence, Evidence, Finding, Judgement, Passed, Role
from ddpdoctor.text import plural, size

IN_GROUP = 150 << 20
"""What one more rank takes to be in a group: 149 to 155 MiB (PSS) with torch 2.13 for CPUs, import, gloo and one
all_reduce of 1 MiB. A CUDA build and its context take more, so this is the least."""
TRAINING = 250 << 20
"""The same after one backward through DDP, which imports more of torch: 243 MiB for a model of next to nothing."""
LAUNCHER = 150 << 20
_OOM_KILLER = (
    r"oom-kill|oom_kill event|OOMKilled|Out of memory: Kill"
    r"|Memory cgroup out of memory|task \d+: Out Of Memory"
)
_OVER_ITS_LIMIT = (
    r"(?i)slurmstepd: .{0,80}exceeded (?:\w+ )?memory limit|TERM_MEMLIMIT|PBS: job killed: p?v?mem\b"
    r"|node was low on resource: memory|node running low on memory"
)
"""As schedulers and supervisors say that they ended a job or a task for its memory."""
_REFUSED = (
    r"DefaultCPUAllocator: .{0,40}allocate memory|\[Errno 12\] Cannot allocate memory|^MemoryError"
    r"|_ArrayMemoryError: Unable to allocate|std::bad_alloc"
)
_WORKER_KILLED = r"DataLoader worker .{0,40}is killed by signal: Killed"
_ANOTHER_SENDER = r"CANCELLED|DUE TO TIME LIMIT|[Pp]reempt|oom"


class HostMemory(Check):
    """There is not enough free memory for this many ranks.

    What it finds:
        Ranks times the least that a rank takes (150 MiB to be in a group, 250 MiB to train anything, without
        model, data and CUDA) against what the control group and the machine have left; and how many processes
        the kernel has killed in this control group for want of memory.

    Why it matters:
        At the limit the kernel kills a rank with SIGKILL: no traceback, only "exitcode: -9", and the other ranks
        wait for it.

    Example:
        A container with 1 GiB for eight ranks:
            docker run --memory 1g image torchrun --nproc-per-node 8 train.py

    Fix:
        Start fewer ranks, or give the container more memory:
            docker run --memory 16g ...              # in Kubernetes: resources.limits.memory
    """

    code = "DD017"
    title = "there is enough memory for the ranks"
    breaks_group = True
    raises = (_REFUSED,)
    log_words = (
        "oom-kill", "oom_kill", "OOMKilled", "Out of memory: Kill", "Out Of Memory",
        "Memory cgroup out of memory", "allocate memory", "emory limit", "TERM_MEMLIMIT", "PBS: job killed",
        "low on resource", "low on memory",
    )  # fmt: skip

    def examine_host(self, host: Host) -> Judgement:
        nproc = host.launch.nproc
        free = _free(host)
        if free < LAUNCHER + TRAINING * nproc:
            return self._short(host, free)
        if host.cgroup.oom_kills:
            killed = plural(host.cgroup.oom_kills, "process")
            return self.info(
                f"the kernel has killed {killed} of this control group because of its memory limit",
                why="An earlier job was at the memory limit of this container or service; a rank that ends "
                "with exitcode -9 and no traceback was killed in this way.",
                fix="raise the limit (docker run --memory, resources.limits.memory, MemoryMax=), or use "
                "fewer workers and ranks",
                evidence=_evidence(host),
            )
        return Passed(f"{size(free)} of memory are free for {plural(nproc, 'rank')}")

    def examine_log(self, log: Log) -> Judgement:
        reason = log.search(_OOM_KILLER)
        if reason:
            killed = [end.rank for end in log.ended if end.code == -signal.SIGKILL and end.rank is not None]
            details = log_fields(reason, role=Role.SYSTEM, ranks=killed or None)
            return self._told("the out-of-memory killer ended a process of the job", details)
        reason = log.search(_OVER_ITS_LIMIT)
        if reason:
            details = log_fields(reason, role=Role.SYSTEM)
            return self._told("a scheduler or supervisor ended the job for its memory", details)
        reason = log.search(_REFUSED)
        if reason:
            return self._told("the host ran out of memory", log_fields(reason))
        return self._silent_kill(log)

    def _silent_kill(self, log: Log) -> Judgement:
        """SIGKILL with no sender named: on a training host that is nearly always the out-of-memory killer."""
        killed = log.search(_WORKER_KILLED)
        if killed:
            text = "a DataLoader worker was killed by SIGKILL, most likely because the host ran out of memory"
            return self._told(text, log_fields(killed), Confidence.LIKELY)
        first = first_death(log)
        if first is None or first.code != -signal.SIGKILL or log.first(_ANOTHER_SENDER):
            return NOT_IN_OUTPUT
        who = "a process" if first.rank is None else f"rank {first.rank}"
        details = log_fields(first.line, role=Role.DEATH, ranks=() if first.rank is None else (first.rank,))
        text = f"{who} was killed by SIGKILL, most likely because the host ran out of memory"
        return self._told(text, details, Confidence.LIKELY)

    def _told(
        self, headline: str, details: dict[str, Any], confidence: Confidence = Confidence.CERTAIN
    ) -> Finding:
        return self.fail(
            headline,
            why="All ranks of a node and their DataLoader workers share the memory of the host or of the "
            "container. Where it ends, the kernel kills the largest process without a word; the others "
            "report a lost connection.",
            fix="dmesg -T | grep -i 'killed process'; kubectl describe pod POD; sacct -j JOB --format=MaxRSS,State\n"
            "fewer DataLoader workers, weights loaded by one rank at a time (or mmap=True), or a higher memory limit",
            confidence=confidence,
            **details,
        )

    def _short(self, host: Host, free: int) -> Finding:
        nproc = host.launch.nproc
        starts = free >= LAUNCHER + IN_GROUP * nproc
        needed = LAUNCHER + (TRAINING if starts else IN_GROUP) * nproc
        report = self.warn if starts else self.fail
        return report(
            f"{size(free)} of memory are free, {plural(nproc, 'rank')} need at least {size(needed)} to "
            + ("train" if starts else "start"),
            why="Python with torch takes that much in every rank, before any model or data. At the limit the "
            "kernel kills a rank with SIGKILL, without a traceback, and the others wait for it.",
            fix=f"--nproc {max(1, (free - LAUNCHER) // TRAINING)}, or give the container more memory "
            "(docker run --memory, resources.limits.memory)",
            evidence=_evidence(host),
        )


def _free(host: Host) -> int:
    _, available = host.system.memory()
    granted = host.cgroup.memory_free
    return available if granted is None else min(available, granted)


def _evidence(host: Host) -> tuple[Evidence, ...]:
    total, available = host.system.memory()
    group = host.cgroup
    lines = [f"machine: {size(available)} of {size(total)} available"]
    if group.memory_limit is not None:
        lines.append(f"control group: {size(group.memory_used or 0)} of {size(group.memory_limit)} used")
    if group.oom_kills:
        lines.append(f"control group: oom_kill {group.oom_kills}")
    return tuple(Evidence(line) for line in lines)
