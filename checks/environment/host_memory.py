from ddpdoctor.check import Check
from ddpdoctor.host import Host
from ddpdoctor.model import Evidence, Family, Finding, Judgement, Passed
from ddpdoctor.text import plural, size

IN_GROUP = 150 << 20
"""What one more rank takes to be in a group: 149 to 155 MiB (PSS) with torch 2.13 for CPUs, import, gloo and one
all_reduce of 1 MiB. A CUDA build and its context take more, so this is the least."""
TRAINING = 250 << 20
"""The same after one backward through DDP, which imports more of torch: 243 MiB for a model of next to nothing."""
LAUNCHER = 150 << 20


class HostMemory(Check):
    """The memory that is left does not hold this many ranks.

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
    name = "host-memory"
    family = Family.ENVIRONMENT
    title = "memory holds the ranks"
    breaks_group = True

    def examine_host(self, host: Host) -> Judgement:
        nproc = host.plan.nproc
        free = _free(host)
        if free < LAUNCHER + TRAINING * nproc:
            return [self._short(host, free)]
        if host.cgroup.oom_kills:
            return [self._killed(host)]
        return Passed(f"{size(free)} of memory are free for {plural(nproc, 'rank')}")

    def _short(self, host: Host, free: int) -> Finding:
        nproc = host.plan.nproc
        starts = free >= LAUNCHER + IN_GROUP * nproc
        needed = LAUNCHER + (TRAINING if starts else IN_GROUP) * nproc
        report = self.warn if starts else self.fail
        return report(
            f"{size(free)} of memory are free, {plural(nproc, 'rank')} need at least {size(needed)} to "
            + ("train" if starts else "start"),
            why="Python with torch takes that much in every rank, before any model or data. At the limit the kernel "
            "kills a rank with SIGKILL, without a traceback, and the others wait for it.",
            fix=f"--nproc {max(1, (free - LAUNCHER) // TRAINING)}, or give the container more memory "
            "(docker run --memory, resources.limits.memory)",
            evidence=_evidence(host),
        )

    def _killed(self, host: Host) -> Finding:
        killed = plural(host.cgroup.oom_kills, "process")
        return self.info(
            f"the kernel has killed {killed} of this control group for want of memory",
            why="An earlier job was at the memory limit of this container or service; a rank that ends with "
            "exitcode -9 and no traceback was killed in this way.",
            fix="raise the limit (docker run --memory, resources.limits.memory, MemoryMax=), or use fewer workers and "
            "ranks",
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
