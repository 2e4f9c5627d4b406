import re
import signal

from ddpdoctor.blame.wording import consequences, verb, who
from ddpdoctor.check import Check, Confidence, Evidence, Judgement, Passed, Role
from ddpdoctor.host import Host
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, log_fields
from ddpdoctor.logs.secondary_errors import first_death
from ddpdoctor.recorder.launchers import by_name
from ddpdoctor.text import plural, ranks_phrase, size
from ddpdoctor.trace import Trace

IN_GROUP = 150 << 20
"""What one more rank needs to be in a group: 149 to 155 MiB (PSS) with torch 2.13 for CPUs, its import, gloo and one
all_reduce of 1 MiB. A CUDA build and its context need more, so this is a lower bound."""
TRAINING = 250 << 20
"""The same after one backward of a DDP model, which imports more of torch: 243 MiB for a tiny model."""
LAUNCHER = 150 << 20
_SLURM = by_name("Slurm")
_OOM_KILLER = (
    r"oom-kill|oom_kill event|OOMKilled|Out of memory: Kill|sending SIG\w+ to process \d+ .{1,80}oom_score"
    rf"|Memory cgroup out of memory|{_SLURM.task_out_of_memory}"
)
_OF_OTHERS = r"Killed process \d+ \((?!python|pt_|torch|ray|accelerate|deepspeed)[^)]{1,40}\)"
"""The kernel's line of a program that is no part of a job of Python."""
_OVER_ITS_LIMIT = (
    rf"(?i){_SLURM.over_memory}|TERM_MEMLIMIT|PBS: job killed: p?v?mem\b"
    r"|node was low on resource: memory|node running low on memory|killed due to memory pressure"
    r"|Container killed by \w+ for exceeding memory limits"
)
"""Messages of schedulers and supervisors that ended a job or a task because of its memory."""
_BY_SCHEDULER = "a scheduler or supervisor ended the job because of its memory"
_ALLOCATION_FAILED = (
    r"DefaultCPUAllocator: .{0,40}allocate memory|\[Errno 12\] Cannot allocate memory|^MemoryError"
    r"|Cannot allocate memory \(12\)|_ArrayMemoryError: Unable to allocate|std::bad_alloc"
)
_WORKER_KILLED = r"DataLoader worker .{0,40}is killed by signal: Killed"
_ANOTHER_SENDER = r"CANCELLED|DUE TO TIME LIMIT|[Pp]reempt|oom|failed liveness probe|NOT ENDING WITH SIGNALS"


class HostMemory(Check):
    """There is not enough free memory for this many ranks.

    What it finds:
        Less free memory in the control group or the machine than the ranks need at least: 150 MiB each to be in a
        group, 250 MiB each to train, without model, data and CUDA. Also processes that the kernel has killed in this
        control group because memory ran out; among them a rank of the run; and a job that Slurm ended for its memory.

    Why it matters:
        All ranks of a node and their DataLoader workers share the memory of the host or of the container. When it
        runs out, the kernel kills the largest process with SIGKILL: no traceback, only "exitcode: -9", and the other
        ranks report a lost connection.

    Example:
        A container with 1 GiB for eight ranks:
            docker run --memory 1g image torchrun --nproc-per-node 8 train.py

    Fix:
        Start fewer ranks or DataLoader workers, load weights on one rank at a time (or with mmap=True), or give the
        container more memory:
            docker run --memory 16g ...     # in Slurm: --mem 64G; in Kubernetes: resources.limits.memory
        The kernel's log and the scheduler show what was killed:
            dmesg -T | grep -i 'killed process'; kubectl describe pod POD; sacct -j JOB --format=MaxRSS,State
    """

    code = "DD017"
    title = "there is enough memory for the ranks"
    breaks_group = True
    raises = (_ALLOCATION_FAILED,)
    log_words = (
        "oom-kill", "oom_kill", "OOMKilled", "Out of memory: Kill", "Out Of Memory", "oom_score",
        "Memory cgroup out of memory", "emory limit", "TERM_MEMLIMIT", "PBS: job killed",
        "low on resource", "low on memory", "memory pressure",
    )  # fmt: skip

    def examine_host(self, host: Host) -> Judgement:
        nproc = host.launch.nproc
        free = _free(host)
        if free < LAUNCHER + TRAINING * nproc:
            starts = free >= LAUNCHER + IN_GROUP * nproc
            needed = LAUNCHER + (TRAINING if starts else IN_GROUP) * nproc
            report = self.warn if starts else self.fail
            return report(
                f"{size(free)} of memory are free, {plural(nproc, 'rank')} need at least {size(needed)} to "
                + ("train" if starts else "start"),
                fix=f"--nproc {max(1, (free - LAUNCHER) // TRAINING)}, or give the container more memory "
                "(docker run --memory, resources.limits.memory)",
                evidence=_evidence(host),
            )
        if host.cgroup.oom_kills:
            killed = plural(host.cgroup.oom_kills, "process")
            return self.info(
                f"the kernel has killed {killed} of this control group because of its memory limit",
                evidence=_evidence(host),
            )
        return Passed(f"{size(free)} of memory are free for {plural(nproc, 'rank')}")

    def examine_run(self, trace: Trace) -> Judgement:
        slurm = trace.ended_by_slurm
        if slurm and slurm["memory"]:
            return self.fail(_BY_SCHEDULER, evidence=[slurm.string])
        killed = tuple(rank.rank for rank in trace.ranks if rank.killed_by == signal.SIGKILL)
        if not trace.broken or not trace.oom_kills or not killed:
            return Passed("the out-of-memory killer ended no rank")
        others = tuple(rank.rank for rank in trace.ranks if rank.rank not in killed)
        return self.fail(
            f"{who(killed)} {verb(killed, 'was', 'were')} killed by the kernel's out-of-memory killer",
            why="The job reached the memory limit of its control group, or the machine had no memory left."
            + consequences(others),
            ranks=killed,
            confidence=Confidence.LIKELY,  # the count is of all processes in the control group
        )

    def examine_log(self, log: Log) -> Judgement:
        reason = log.search(_OOM_KILLER)
        ended = [end for end in log.ended if end.code == -signal.SIGKILL]
        if reason and (ended or not re.search(_OF_OTHERS, reason.match.string)):
            killed = [end.rank for end in ended if end.rank is not None]
            details = log_fields(reason, role=Role.SYSTEM, ranks=killed or None)
            whom = ranks_phrase(details["ranks"], "a process of the job")
            return self.fail(f"the out-of-memory killer ended {whom}", **details)
        if reason := log.search(_OVER_ITS_LIMIT):
            return self.fail(_BY_SCHEDULER, **log_fields(reason, role=Role.SYSTEM))
        if reason := log.search(_ALLOCATION_FAILED):
            return self.fail("the host ran out of memory", **log_fields(reason))
        return self._killed_without_message(log)

    def _killed_without_message(self, log: Log) -> Judgement:
        """SIGKILL from an unknown sender: on a training host that is nearly always the out-of-memory killer."""
        reason, first = log.search(_WORKER_KILLED), first_death(log)
        if reason:
            details = log_fields(reason)
            killed = f"a DataLoader worker of {ranks_phrase(details['ranks'], 'a rank')}"
        elif first and first.code == -signal.SIGKILL and not log.first(_ANOTHER_SENDER):
            killed, details = first.who, log_fields(first, role=Role.DEATH)
        else:
            return NOT_IN_OUTPUT
        headline = f"{killed} was killed by SIGKILL, most likely because the host ran out of memory"
        return self.fail(headline, confidence=Confidence.LIKELY, **details)


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
