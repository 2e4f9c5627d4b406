import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ddpdoctor.blame.wording import consequences, verb, who
from ddpdoctor.check import Check, Confidence, Evidence, Finding, Judgement, NotMeasured, Passed, Role
from ddpdoctor.failures import Says, pattern
from ddpdoctor.group.group_record import GroupRecord, Stage
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Line, Log, Raised, Reason, log_fields
from ddpdoctor.logs.process_ends import SIGNALS
from ddpdoctor.logs.secondary_errors import first_death, has_failed
from ddpdoctor.recorder.launchers import by_name
from ddpdoctor.recorder.where import package_of
from ddpdoctor.text import ranks_phrase, signal_name
from ddpdoctor.trace import Trace

_TEXTS: dict[int, dict[str, str]] = {
    signal.SIGKILL: {
        "why": "A process cannot catch SIGKILL. On a training host the usual sender is the kernel's out-of-memory "
        "killer, then the memory limit of a container, then the scheduler.",
        "fix": "dmesg -T | grep -i 'killed process'",
    },
    signal.SIGBUS: {
        "why": "The usual cause of SIGBUS in a rank is full shared memory: /dev/shm holds the buffers of NCCL and of "
        "DataLoader workers.",
        "fix": "df -h /dev/shm\ndocker run --shm-size=8g ...    # or --ipc=host",
    },
    signal.SIGSEGV: {
        "why": "A segmentation fault is an error in native code: torch, a driver, an extension built for another "
        "torch, or a debugging setting (TORCH_DISTRIBUTED_DEBUG=DETAIL crashes DDP in torch 2.13 on CPU).",
        "fix": "PYTHONFAULTHANDLER=1 torchrun ...    # prints the Python line of the fault",
    },
    signal.SIGILL: {
        "why": "SIGILL means that this CPU lacks an instruction that the installed build uses.",
        "fix": (
            "python -c 'import torch; print(torch.backends.cpu.get_cpu_capability())'\ninstall a "
            "torch that was built for this CPU"
        ),
    },
    signal.SIGABRT: {
        "why": "Native code in the process aborts it after an error that it cannot handle, and prints the error in "
        "its last lines.",
        "fix": "read the last lines of the rank's output; PYTHONFAULTHANDLER=1 adds the Python line",
    },
    signal.SIGTERM: {
        "why": "SIGTERM asks a process to end. Senders are a scheduler at a time limit or a preemption, a service "
        "manager, or a person.",
        "fix": "look at the scheduler's record of the job: sacct -j JOB, kubectl describe pod POD",
    },
    signal.SIGINT: {
        "why": "SIGINT is what Ctrl-C sends, and some schedulers before they end a job.",
        "fix": "look at the scheduler's record of the job: sacct -j JOB, kubectl describe pod POD",
    },
    signal.SIGFPE: {
        "why": "Native code divided an integer by zero, mostly one of a shape that is 0.",
        "fix": "PYTHONFAULTHANDLER=1 torchrun ...    # prints the Python line of the fault",
    },
    signal.SIGXCPU: {
        "why": "The process used more CPU time than its limit.",
        "fix": "ulimit -t     # in the job, as the scheduler or the shell set it; it has to say unlimited",
    },
    signal.SIGXFSZ: {
        "why": "The process wrote a file that is larger than its limit.",
        "fix": "ulimit -f     # in the job, as the scheduler or the shell set it; it has to say unlimited",
    },
    signal.SIGUSR1: {
        "why": "Schedulers send SIGUSR1 some time before they end a job, if the job requests it. It ends a process "
        "without a handler.",
        "fix": "#SBATCH --signal=B:USR1@120     # to the batch script, which forwards it to a handler that saves\n"
        "signal.signal(signal.SIGUSR1, save_and_exit)     # in every rank",
    },
    signal.SIGHUP: {
        "why": "SIGHUP is sent when the terminal that started the job is closed.",
        "fix": "nohup torchrun ... &    # or in tmux, or as a batch job",
    },
}
_UNKNOWN = {
    "why": "The signal came from outside the process.",
    "fix": "find its sender: the scheduler, a supervisor, a person",
}
_TO_LAUNCHER = (
    r"Received (?P<signal>\d+) death signal",
    r"got signal: (?P<signal>\d+)",
    r"closing signal (?P<signal>SIGHUP|SIGINT)",
)
_LIMIT = by_name("Slurm").over_time
_ENDS_STEP = re.compile(r"CANCELLED AT \S+")
"""Slurm's words for scancel, and for srun that ends the other tasks after one has failed."""
_SCHEDULER = (
    rf"CANCELLED AT \S+(?: {_LIMIT})?|{_LIMIT}|TERM_(?:RUNLIMIT|CPULIMIT|PREEMPT|OWNER)\b"
    r"|PBS: job killed: (?:walltime|cput)\b.{0,60}|Preempted by (?:a )?pod.{0,80}"
    r"|Container \S{1,80} failed liveness probe"
)
_FIX_OF_SLURM = (
    "sacct -j JOB --format=State,Elapsed,Timelimit,Reason\nrequest a longer --time, or "
    "save checkpoints at intervals and use --requeue"
)
_WHY_OF_SCHEDULER = (
    "The job was stopped from outside: at its time limit, for another job, by a health "
    "check or a person. The lines before that show whether it made progress or hung."
)
_FIX_OF = {
    "PBS": (
        "qstat -xf JOB\nrequest a longer -l walltime, or save checkpoints at intervals and "
        "resume from the last"
    ),
    "Container": "kubectl describe pod POD     # the probe, and what it got\n"
    "a probe that does not depend on training, or a longer failureThreshold * periodSeconds",
    "Preempted by": (
        "kubectl describe pod POD; kubectl get priorityclass\na higher priorityClassName, or "
        "save checkpoints at intervals and resume from the last"
    ),
    "TERM_": ("bhist -l JOB\nrequest a longer -W, or save checkpoints at intervals and resume from the last"),
}
"""By how the scheduler's words begin."""
_WORKER = (
    r"DataLoader worker .{0,40}is killed by signal: (?P<name>Segmentation fault|Aborted|Illegal instruction)"
)
_LEADS_TO_MISMATCH = ("DD011", "DD106", "DD204", "DD225", "DD303", "DD305", "DD308", "DD309")
"""Problems after which ranks meet in different collectives, which gloo may end by an abort."""
_WATCHDOG_LOST = (
    r"(?:watchdog thread terminated with|raised the following async) exception: "
    rf".{{0,200}}(?:{pattern(Says.PEER_GONE)})"
)
_LAST_WORDS = (r"Fatal Python error: .*", r"terminate called after throwing an instance of .*")
_FAULT, _FAULT_NUMBER = r"(?P<signal>SIG(?:SEGV|BUS|FPE|ILL|ABRT))", r"(?P<signal>4|6|7|8|11)"
_DYING_WORDS = (
    rf"^Fatal Python error: (?P<name>{'|'.join(SIGNALS)})$",
    rf"^\*\*\* {_FAULT} (?:\(@0x\w+\) )?received (?:at time|by PID)",
    rf"^\[\S+:\d+ *:\d+:\d+\] +Caught signal {_FAULT_NUMBER} \([A-Z][a-z]",
    rf"^\[\S+:\d+\] Signal: .{{1,40}} \({_FAULT_NUMBER}\)$",
)
"""By which Python, absl, UCX and Open MPI tell of the signal that ends their own process.

Of faults only: scripts handle other signals, say so, and go on."""


class KilledBySignal(Check):
    """A signal ended a rank before its work was done.

    What it finds:
        The rank that a signal killed first, which signal, and its usual senders. A rank that is killed after the end
        of its script is not reported: gloo sometimes aborts there, and nothing is lost.

    Why it matters:
        A killed process prints no traceback. The other ranks do, about a peer that closed the connection, so the
        output of the job names every rank but the one that was killed.

    Example:
        Rank 2 exceeds the memory limit and gets SIGKILL; ranks 0, 1 and 3 report "Connection reset by peer".

    Fix:
        SIGKILL: look for the out-of-memory killer (dmesg -T). SIGBUS: enlarge /dev/shm. SIGSEGV, SIGABRT: run with
        PYTHONFAULTHANDLER=1. SIGTERM: look at the scheduler's time limit. SIGHUP: use nohup or tmux.
    """

    code = "DD012"
    title = "no signal ends a rank"
    explained_by = ("DD016", "DD017", "DD302", "DD315")
    log_words = (
        "death signal", "got signal", "closing signal", "DUE TO TIME LIMIT", "CANCELLED AT",
        "PBS: job killed", "TERM_", "Preempted by", "Fatal Python error", "terminate called",
        "watchdog thread terminated", "async exception", "liveness probe", "*** SIG", "Caught signal", "] Signal: ",
    )  # fmt: skip

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        if ranks.broken is None:
            return Passed("no signal ended a rank of the live group")
        first = ranks.first_to_break()
        if first is None or first.killed_by is None or ranks.stage is not Stage.MEASURE:
            raise NotMeasured(ranks.broken)
        others = tuple(rank.rank for rank in ranks.ranks if rank.rank != first.rank)
        where = f" in {first.step or first.current}" if first.step or first.current else ""
        return self._killed((first.rank,), others, first.killed_by, where)

    def examine_run(self, trace: Trace) -> Judgement:
        if trace.broken is None:
            return Passed("no signal ended a rank of the training run")
        slurm = trace.ended_by_slurm
        if slurm and not slurm["memory"]:
            headline = f"the scheduler ended the job: {slurm[0]}"
            return self.fail(headline, why=_WHY_OF_SCHEDULER, fix=_FIX_OF_SLURM, evidence=[slurm.string])
        first = trace.first_to_break()
        if first is None or first.killed_by is None or trace.timed_out:
            raise NotMeasured(trace.broken)  # ddpdoctor kills the ranks of a run that it stops
        alike = tuple(rank.rank for rank in trace.ranks if rank.killed_by == first.killed_by)
        # Of other signals the first is the cause; SIGTERM on all of them came from outside.
        killed = alike if first.killed_by == signal.SIGTERM else (first.rank,)
        others = tuple(rank.rank for rank in trace.ranks if rank.rank not in killed)
        return self._killed(
            killed,
            others,
            first.killed_by,
            " in the training run",
            evidence=(Evidence("\n".join(first.output), killed[:1]),) if first.output else (),
            explained_by=_LEADS_TO_MISMATCH if first.is_victim else (),
        )

    def _killed(
        self, killed: tuple[int, ...], others: tuple[int, ...], number: int, where: str, **details: Any
    ) -> Finding:
        texts = _TEXTS.get(number, _UNKNOWN)
        return self.fail(
            f"{who(killed)} {verb(killed, 'was', 'were')} killed by {signal_name(number)}{where}",
            why=texts["why"] + consequences(others),
            fix=texts["fix"],
            ranks=killed,
            confidence=Confidence.LIKELY,
            **details,
        )

    def examine_log(self, log: Log) -> Judgement:
        launcher, scheduler = log.search(*_TO_LAUNCHER), log.search(_SCHEDULER)
        if scheduler and _ENDS_STEP.fullmatch(scheduler.match[0]) and _is_consequence(log, scheduler):
            scheduler = None
        if launcher and launcher.match["signal"] in ("15", "SIGTERM") and _is_consequence(log, launcher):
            launcher = None
        number = _number(launcher.match["signal"]) if launcher else 0
        by_person = _ENDS_STEP.fullmatch(scheduler.match[0]) if scheduler else number == signal.SIGINT
        report = self.warn if by_person else self.fail
        if launcher and number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            texts = _TEXTS.get(number, _UNKNOWN)
            sender = f", which the scheduler sent: {scheduler.match[0]}" if scheduler else ""
            return report(
                f"the launcher was ended by {signal_name(number)}{sender}",
                why=f"{texts['why']} The training did not fail; the launcher forwarded the signal to its ranks.",
                fix=texts["fix"],
                **log_fields(launcher, *([scheduler] if scheduler else []), role=Role.DEATH),
            )
        if scheduler:
            words = scheduler.match[0]
            return report(
                f"the scheduler ended the job: {words}",
                why=_WHY_OF_SCHEDULER,
                fix=next((fix for start, fix in _FIX_OF.items() if words.startswith(start)), _FIX_OF_SLURM),
                **log_fields(scheduler, role=Role.DEATH),
            )
        if worker := log.search(_WORKER):
            number = SIGNALS[worker.match["name"]]
            headline = f"a DataLoader worker was killed by {signal_name(number)}"
            return self.fail(headline, **_texts(number, log.faults), **log_fields(worker, *log.faults[:1]))
        first = first_death(log)
        dying = None if first else log.search(*_DYING_WORDS)
        number = -first.code if first else _number_in(dying)
        if number == signal.SIGABRT and (log.waits or log.first(_WATCHDOG_LOST)):
            return NOT_IN_OUTPUT  # the watchdog aborts a process whose collective did not end, or that lost a peer
        source = first or dying
        if source is None:
            return NOT_IN_OUTPUT
        last = log.search(*_LAST_WORDS) if first else None
        ranks = {"ranks": () if first.rank is None else (first.rank,)} if first else {}
        faults = [it for it in log.faults if not first or it.rank in (None, first.rank)][:1]
        details = log_fields(source, *([last] if last else []), *faults, role=Role.DEATH, **ranks)
        return self.fail(
            f"{ranks_phrase(details['ranks'], 'a process')} was killed by {signal_name(number)}",
            confidence=Confidence.LIKELY,
            # A library's error aborts the process.
            explained_by=("DD314",) if number == signal.SIGABRT else (),
            **_texts(number, faults),
            **details,
        )


def _texts(number: int, faults: Sequence[Raised]) -> dict[str, str]:
    """Why and fix; where Python printed its stack, by the function whose native code has the fault."""
    texts = _TEXTS.get(number, _UNKNOWN)
    frame = next((it.frames[-1] for it in faults if it.frames), None)
    if frame is None:
        return texts
    package = Path(package_of(frame.file)).name
    fix = "the extension that it calls"
    if package:
        fix = f"another version of {package}, or its build for this torch"
    return {**texts, "fix": f"look at the native code below {frame}: {fix}"}


def _number(text: str) -> int:
    return int(text) if text.isdigit() else int(getattr(signal, text))


def _number_in(words: Reason | None) -> int:
    """The signal that :data:`_DYING_WORDS` name; 0 for no words."""
    groups = words.match.groupdict() if words else {"signal": "0"}
    return int(SIGNALS[groups["name"]]) if groups.get("name") else _number(groups["signal"])


def _is_consequence(log: Log, reason: Reason) -> bool:
    """Whether ranks had failed before this was said: a launcher or scheduler then ends the others."""
    lines = (source for source in reason.sources if isinstance(source, Line))
    return any(has_failed(log, line.position) for line in lines)
