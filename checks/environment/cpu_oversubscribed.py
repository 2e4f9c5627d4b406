from ddpdoctor.check import Check, Evidence, Finding, Judgement, Passed, Skipped
from ddpdoctor.host import Host
from ddpdoctor.host.known_variables import whole_number
from ddpdoctor.recorder.events.process import Threads
from ddpdoctor.text import plural
from ddpdoctor.trace import Recording, Trace

THREADS_PER_CPU = 2.0
"""Above this, threads mostly wait for each other."""


class CpuOversubscribed(Check):
    """Ranks times threads exceeds the CPUs that this process may use.

    What it finds:
        OMP_NUM_THREADS times ranks far above the CPUs that remain after the affinity mask and the control group's
        quota (a warning); and more ranks than CPUs (information). In a run, far more torch threads and DataLoader
        workers than CPUs (information).

    Why it matters:
        Ranks, threads and DataLoader workers take turns on the CPUs, and OpenMP threads spin while they wait for each
        other. With more of them than CPUs, each step takes many times as long, and every rank waits for the slowest in
        the next all-reduce.

    Example:
        A container with 4 CPUs on a machine with 64:
            docker run --cpus 4 -e OMP_NUM_THREADS=16 image torchrun --nproc-per-node 4 train.py

    Fix:
        Divide the CPUs among the ranks and their DataLoader workers:
            export OMP_NUM_THREADS=1                 # torchrun's own default
            DataLoader(..., num_workers=N)           # N: CPUs of this host / its ranks
    """

    code = "DD018"
    title = "ranks and threads fit the CPUs"

    def examine_host(self, host: Host) -> Judgement:
        nproc, granted = host.launch.nproc, _granted(host)
        threads = _omp_threads(host.environ.get("OMP_NUM_THREADS", ""))
        if threads > 1 and threads * nproc > THREADS_PER_CPU * granted:
            return self._too_many_threads(host, threads, granted)
        if nproc > granted:
            return self.info(
                f"{plural(host.launch.nproc, 'rank')} share {_cpus(granted)}",
                why="Ranks take turns on the CPUs, so a run shows whether the job works, but not how fast it is.",
                fix=f"--nproc {max(1, int(granted))}     # to measure speed",
                evidence=_evidence(host),
            )
        return Passed(f"{_cpus(granted)} for {plural(nproc, 'rank')} of {plural(threads, 'thread')}")

    def examine_run(self, trace: Trace) -> Judgement:
        recordings = trace.recordings()
        known = [it.cpus or 0 for recording in recordings.values() for it in recording.events(Threads)]
        cpus = max(known, default=0)
        if not cpus or len({recording.host for recording in recordings.values()}) > 1:
            return Skipped("the CPUs of the ranks' host are not known")
        used = {rank: (_torch_threads(it), _workers(it)) for rank, it in recordings.items()}
        threads, workers = map(sum, zip(*used.values(), strict=True))
        if threads + workers <= THREADS_PER_CPU * cpus:
            return Passed(f"{_busy(threads, workers)} on {_cpus(cpus)}")
        return self.info(
            f"{_busy(threads, workers)} share {_cpus(cpus)}",
            evidence={rank: _busy(*of_rank) for rank, of_rank in used.items()},
        )

    def _too_many_threads(self, host: Host, threads: int, granted: float) -> Finding:
        nproc = host.launch.nproc
        return self.warn(
            f"OMP_NUM_THREADS={threads} gives {plural(nproc, 'rank')} {threads * nproc} threads on {_cpus(granted)}",
            fix=f"export OMP_NUM_THREADS={max(1, int(granted // nproc))}",
            evidence=_evidence(host),
        )


def _granted(host: Host) -> float:
    """The CPUs that affinity mask and quota leave."""
    _, allowed = host.system.cpus()
    return host.cgroup.granted(allowed)


def _omp_threads(value: str) -> int:
    """Threads of a rank: the first level of a list such as ``4,2``; torchrun sets 1 where the user set nothing."""
    return whole_number(value.partition(",")[0]) or 1


def _cpus(granted: float) -> str:
    return f"{granted:g} CPU{'' if granted == 1 else 's'}"


def _workers(recording: Recording) -> int:
    """The most workers of one DataLoader; those of several are seldom busy at once."""
    used = {pass_.loader for pass_ in recording.passes}
    return max((loader.workers for loader in recording.loaders if loader.index in used), default=0)


def _torch_threads(recording: Recording) -> int:
    return next((event.threads for event in recording.events(Threads)), 1)


def _busy(threads: int, workers: int) -> str:
    also = f" and {plural(workers, 'DataLoader worker')}" if workers else ""
    return f"{plural(threads, 'thread')} of torch{also}"


def _evidence(host: Host) -> tuple[Evidence, ...]:
    count, allowed = host.system.cpus()
    quota = "" if host.cgroup.cpus is None else f", the control group's quota is {host.cgroup.cpus:g}"
    return (Evidence(f"the machine has {plural(count, 'CPU')}, {allowed} in the affinity mask{quota}"),)
