import signal
from collections.abc import Sequence
from dataclasses import replace

from ddpdoctor.check import Check
from ddpdoctor.group.group_record import GroupRecord, Stage
from ddpdoctor.judge import NotMeasured
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, Reason, log_fields
from ddpdoctor.logs.process_ends import SIGNALS
from ddpdoctor.logs.secondary_errors import PEER_IS_GONE, first_death
from ddpdoctor.model import Confidence, Evidence, Finding, Judgement, Passed, Role
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import Trace

_CAUSES: dict[int, tuple[str, str]] = {
    signal.SIGKILL: (
        "No program can catch SIGKILL; on a training host the kernel's out-of-memory killer is its usual "
        "sender, then the memory limit of a container, then the scheduler.",
        "dmesg -T | grep -i 'killed process'",
    ),
    signal.SIGBUS: (
        "SIGBUS in a rank is mostly shared memory that is full: /dev/shm holds the buffers of NCCL and of "
        "DataLoader workers.",
        "df -h /dev/shm\ndocker run --shm-size=8g ...    # or --ipc=host",
    ),
    signal.SIGSEGV: (
        "A segmentation fault is a fault in native code: torch, a driver, an extension built for another "
        "torch, or a debugging setting (TORCH_DISTRIBUTED_DEBUG=DETAIL crashes DDP in torch 2.13 on CPU).",
        "PYTHONFAULTHANDLER=1 torchrun ...    # prints the Python line of the fault",
    ),
    signal.SIGILL: (
        "SIGILL means that this CPU lacks an instruction that the installed build uses.",
        "python -c 'import torch; print(torch.backends.cpu.get_cpu_capability())'\n"
        "install a torch that was built for this CPU",
    ),
    signal.SIGABRT: (
        "SIGABRT is a program's own: native code met a state that it cannot go on from, and says which in "
        "the last lines of its output.",
        "read the last lines of the rank's output; PYTHONFAULTHANDLER=1 adds the Python line",
    ),
    signal.SIGTERM: (
        "SIGTERM asks a program to end: a scheduler at a time limit or a preemption, a service manager, or a person.",
        "look into the scheduler's record of the job (sacct -j JOB, kubectl describe pod POD)",
    ),
    signal.SIGHUP: (
        "SIGHUP comes when the terminal that started the job is closed.",
        "nohup torchrun ... &    # or in tmux, or as a batch job",
    ),
}
_UNKNOWN = (
    "The signal came from outside the program.",
    "find its sender: the scheduler, a supervisor, a person",
)
_TO_LAUNCHER = (
    r"Received (?P<signal>\d+) death signal",
    r"got signal: (?P<signal>\d+)",
    r"closing signal (?P<signal>SIGHUP|SIGINT)",
)
_LIMIT = r"DUE TO (?:TIME LIMIT|PREEMPTION|NODE FAILURE)"
_SCHEDULER = (
    rf"CANCELLED AT \S+(?: {_LIMIT})?|{_LIMIT}|TERM_(?:RUNLIMIT|CPULIMIT|PREEMPT|OWNER)\b"
    r"|PBS: job killed: (?:walltime|cput)\b.{0,60}"
)
_WORKER = (
    r"DataLoader worker .{0,40}is killed by signal: (?P<name>Segmentation fault|Aborted|Illegal instruction)"
)
_LEAD_ELSEWHERE = ("DD106", "DD204", "DD225", "DD303", "DD305", "DD308", "DD309")
"""Diseases by which ranks meet in different collectives, which gloo may end by an abort."""
_WATCHDOG_LOST = (
    rf"watchdog thread terminated with exception: .{{0,200}}(?:{PEER_IS_GONE}|remote process exited)"
)
_LAST_WORDS = (r"Fatal Python error: .*", r"terminate called after throwing an instance of .*")


class KilledBySignal(Check):
    """A signal ended a rank before its work was done.

    What it finds:
        The rank that a signal killed first, which signal, and who usually sends it. A rank that dies after the
        end of its script is not reported: gloo aborts there now and then, and nothing is lost.

    Why it matters:
        A killed process leaves no traceback. The other ranks do, about a peer that closed the connection, and
        so the output of the job names everybody but the rank that died.

    Example:
        Rank 2 exceeds the container's memory and gets SIGKILL; ranks 0, 1 and 3 report "Connection reset by peer".

    Fix:
        SIGKILL: look for the out-of-memory killer (dmesg -T). SIGBUS: enlarge /dev/shm. SIGSEGV, SIGABRT: run
        with PYTHONFAULTHANDLER=1. SIGTERM: look at the scheduler's time limit. SIGHUP: use nohup or tmux.
    """

    code = "DD012"
    title = "no signal ends a rank"
    explained_by = ("DD016", "DD017", "DD302")
    log_words = (
        "death signal", "got signal", "closing signal", "DUE TO TIME LIMIT", "CANCELLED AT",
        "PBS: job killed", "TERM_", "Fatal Python error", "terminate called", "watchdog thread terminated",
    )  # fmt: skip

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        first = ranks.first_to_break()
        if ranks.broken is None:
            return Passed("no signal ended a rank of the live group")
        killed = first is not None and first.failure is None and (first.exit_code or 0) < 0
        if first is None or not killed or ranks.stage is not Stage.MEASURE:
            raise NotMeasured(ranks.broken)
        others = tuple(rank.rank for rank in ranks.ranks if rank.rank != first.rank)
        where = f" in {first.step or first.current}" if first.step or first.current else ""
        return self._finding((first.rank,), others, -(first.exit_code or 0), where, ())

    def examine_run(self, trace: Trace) -> Judgement:
        first = trace.first_to_break()
        if trace.broken is None:
            return Passed("no signal ended a rank of the training run")
        if first is None or first.killed_by is None or trace.timed_out:
            raise NotMeasured(trace.broken)  # whoever was stopped by us was killed, too
        alike = tuple(rank.rank for rank in trace.ranks if rank.killed_by == first.killed_by)
        # Of other signals the first is the cause; SIGTERM on all of them came from outside.
        killed = alike if first.killed_by == signal.SIGTERM else (first.rank,)
        others = tuple(rank.rank for rank in trace.ranks if rank.rank not in killed)
        found = self._finding(killed, others, first.killed_by, " in the training run", first.output)
        return [replace(found, explained_by=_LEAD_ELSEWHERE) if first.is_victim else found]

    def examine_log(self, log: Log) -> Judgement:
        launcher = log.search(*_TO_LAUNCHER)
        if launcher:
            number = _number(launcher.match["signal"])
            if number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
                return self._told_launcher(log, launcher, number)
        sender = log.search(_SCHEDULER)
        if sender:
            return self._told_scheduler(sender)
        worker = log.search(_WORKER)
        if worker:
            return self._told_worker(worker)
        first = first_death(log)
        if first is None or (-first.code == signal.SIGABRT and (log.waits or log.first(_WATCHDOG_LOST))):
            return NOT_IN_OUTPUT  # the watchdog aborts a process whose collective did not end, or that lost a peer
        who = "a process" if first.rank is None else f"rank {first.rank}"
        why, fix = _CAUSES.get(-first.code, _UNKNOWN)
        last = log.search(*_LAST_WORDS)
        ranks = () if first.rank is None else (first.rank,)
        return self.fail(
            f"{who} was killed by {_name(-first.code)}",
            why=why,
            fix=fix,
            confidence=Confidence.LIKELY,
            explained_by=("DD314",)
            if -first.code == signal.SIGABRT
            else (),  # a library's error aborts the process
            **log_fields(first.line, *(last.sources if last else ()), role=Role.DEATH, ranks=ranks),
        )

    def _told_scheduler(self, reason: Reason) -> Finding:
        return self.fail(
            f"the scheduler ended the job: {reason.match[0]}",
            why="The job was stopped from outside, at its time limit, for another job, or by hand. Whether "
            "it was at work until then, or hung, its last lines before that show.",
            fix="sacct -j JOB --format=State,Elapsed,Timelimit,Reason\n"
            "a longer --time, or checkpoints at intervals and --requeue",
            **log_fields(reason, role=Role.DEATH),
        )

    def _told_worker(self, reason: Reason) -> Finding:
        number = SIGNALS[reason.match["name"]]
        why, fix = _CAUSES.get(number, _UNKNOWN)
        return self.fail(
            f"a DataLoader worker was killed by {_name(number)}", why=why, fix=fix, **log_fields(reason)
        )

    def _told_launcher(self, log: Log, reason: Reason, number: int) -> Finding:
        sender = log.search(_SCHEDULER)
        by = f", which the scheduler sent: {sender.match[0]}" if sender else ""
        why, fix = _CAUSES.get(number, _UNKNOWN)
        return self.fail(
            f"the launcher was ended by {_name(number)}{by}",
            why=f"{why} Nothing in the training failed; the launcher passed the signal on to its ranks.",
            fix=fix,
            **log_fields(reason, *(sender.sources if sender else ()), role=Role.DEATH),
        )

    def _finding(
        self, killed: tuple[int, ...], others: tuple[int, ...], number: int, where: str, output: Sequence[str]
    ) -> Finding:
        why, fix = _CAUSES.get(number, _UNKNOWN)
        victims = f" What {ranks_phrase(others)} said afterwards is a consequence." if others else ""
        return self.fail(
            f"{ranks_phrase(killed)} {'was' if len(killed) == 1 else 'were'} killed by {_name(number)}{where}",
            why=why + victims,
            fix=fix,
            ranks=killed,
            evidence=(Evidence("\n".join(output), killed[:1]),) if output else (),
            confidence=Confidence.LIKELY,
        )


def _name(number: int) -> str:
    named = number in list(signal.Signals)  # real-time signals are not
    return signal.Signals(number).name if named else f"signal {number}"


def _number(text: str) -> int:
    return int(text) if text.isdigit() else int(getattr(signal, text))
