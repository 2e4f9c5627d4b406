import re

from ddpdoctor import failures, registry
from ddpdoctor.blame.causes import FailedAndWaits
from ddpdoctor.blame.frames import fold_libraries
from ddpdoctor.blame.wording import consequences, others_wait, verb, wait_phrase, who
from ddpdoctor.check import Evidence, Finding, Judgement, NotMeasured, Passed, Role, Source, Where, reports
from ddpdoctor.group.group_record import GroupRecord, RankRecord, Stage
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Line, Log, Raised, Reason, log_fields
from ddpdoctor.logs.secondary_errors import first_cause, own_causes, ranks_of
from ddpdoctor.recorder.events.process import Raised as ScriptRaised
from ddpdoctor.recorder.launchers import COMMANDS, LAUNCHERS, by_name
from ddpdoctor.text import plural, quote, ranks_phrase, shorten
from ddpdoctor.trace import RankTrace, Trace
from ddpdoctor.trace.files import changed_by_others, exchanged
from ddpdoctor.trace.raised import REFUSED, as_raised, innermost, last_line, place_in_worker, remedy
from ddpdoctor.trace.recorded_job import HangCheck

_CONNECTION_WARNING = re.compile(
    r"^(?:\[rank\d+\]:)?\s*frame #\d+: |TCPStore\.cpp|socket\.cpp|Exception raised from "
)
"""Lines of torch's warnings about connections, and the C++ frames below them."""
_PEER_MISSING = ("DD011", "DD106", "DD225", "DD301", "DD302", "DD303", "DD305", "DD306", "DD308", "DD309")
"""Problems that leave a rank alone in a collective."""
_FILE_CHANGED = ("DD401", "DD402", "DD020")
"""Problems in which a rank finds no file, a partial one or an unexpected one, because of another rank."""
_SCRIPT_NOT_STARTED = (
    r"^(?:[\w.-]+\.py|python[\d.]* -m [\w.]+): error: \S.*"
    r"|(?:^|(?<=/))python[\d.]*: "
    r"(?:can't open file|can't find '__main__' module|No module named|Error while finding) .*"
)
"""Errors of a script's argument parser, and of Python before the script begins; both have no traceback."""
_OF_HYDRA = (
    r"^(?:Error in call to target '.+':|Could not override '.+'\.?|In '.+': Could not find '.+'"
    r"|Primary config .{1,200} not found.*)$"
)
"""Errors of Hydra, which leaves their tracebacks out."""
_NOT_STARTED = {
    rf"(?:{'|'.join(COMMANDS)}|python3?): (?:command )?not found": by_name("shells").start_fix,
    **{text: launcher.start_fix for launcher in LAUNCHERS for text in launcher.not_started},
}
"""Errors of shells, schedulers and containers that could not start the launcher, and what to do about them."""
_STARTED = r"Successfully assigned|Successfully pulled|Started container"
"""What Kubernetes says of a pod that found its node, its image, and began."""
_NEAR_THE_END = 12
"""Lines from the end of the output in which an error is what ended it."""
_OF_THE_PROGRAM = (
    "TypeError",
    "AttributeError",
    "NameError",
    "UnboundLocalError",
    "ImportError",
    "ModuleNotFoundError",
)
"""Exceptions that a rank rarely raises because another one has failed."""
_OF_NOTHING = re.compile(r"\bNone(?:Type)?\b")
"""In the message of an exception about what was not there: another rank may have failed to send it."""
_UNDEFINED = "gradient which is undefined, but still allreduced"
_UNREADY_REDUCER = ("DD201", "DD207")
"""With find_unused_parameters, DDP ends so after a backward that its forward did not prepare."""
_MOST_ERRORS = 3
"""Findings about one run, of ranks that failed by different mistakes."""
_LAST_ERROR = "Last error:"
"""In NCCL's message, above its most specific line."""
_LAST_LINES = 10
"""Of the output of a rank that ended without an exception."""
_FIND_EXIT = "find what ends the process there: sys.exit, os._exit"
_FIX_USAGE = (
    "options of ddpdoctor stand before the script, and the script's arguments after it: "
    "ddpdoctor check --nproc 2 {} ARGS..."
)
_FIX_STATUS = {
    126: "make the program executable: chmod +x PROGRAM",
    127: "activate the environment that has the program, or name it by its path",
}
"""By the exit status of a shell that cannot run a program, or does not find it."""


class RankFailedFirst(HangCheck):
    """One rank failed first, and the others failed because of it.

    What it finds:
        The first rank to fail, with its exception and line. The other ranks fail a moment later because the
        connection to it is closed ("connection closed by peer"), or the launcher stops them. Also a rank whose
        exception has not ended it yet, because a `finally` or `except` waits for the others first.

    Why it matters:
        Such a job prints a traceback of every rank, most of them about the connection. The one that names the cause
        is easily missed, or thousands of lines above.

    Example:
        Rank 2 reads a broken image and raises; ranks 0, 1 and 3 report "Connection closed by peer".

    Fix:
        Fix the exception of the rank named here; the others are consequences.
    """

    code = "DD304"
    title = "every rank reaches its end"
    names_no_cause_in = (Source.RUN, Source.LOG)
    log_words = (
        ": error: ",
        "Error in call to target",
        "Could not override",
        "Could not find",
        "Primary config",
        *failures.words(_SCRIPT_NOT_STARTED, _STARTED, *_NOT_STARTED),
    )
    explained_by = ("DD005", "DD215", "DD224", "DD315", "DD408")
    """They recognize some exceptions by what led to them."""

    @reports(FailedAndWaits)
    def _failed_and_waits(self, cause: FailedAndWaits) -> Finding:
        handled, place, ranks = cause.handled, cause.own_wait, who(cause.culprits)
        message = f" {quote(shorten(handled.message))}" if handled.message else ""
        waits = wait_phrase(cause.culprits, place).removeprefix(f"{ranks} ")
        return self.fail(
            f"{ranks} failed with {handled.type}{message} and {waits}, while {others_wait(cause)}",
            why=f"The exception has not ended {ranks}: a `finally` or `except` that handles it waits in {place.what}, "
            "which the others do not join. Its traceback is printed at the timeout of the process group, or never.",
            fix="fix the exception at this line, and do not call collectives while an exception is handled:\n"
            "train()\ndist.barrier()     # after the work, not in its finally\ndist.destroy_process_group()",
        )

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        if ranks.broken is None:
            return Passed(f"all {len(ranks.ranks)} ranks of the live group reached their end")
        first = ranks.first_to_break()
        if first is None or first.killed_by or ranks.unwritable or ranks.stage is not Stage.MEASURE:
            raise NotMeasured(ranks.broken)
        others = [rank.rank for rank in ranks.ranks if rank.rank != first.rank]
        return self.fail(
            f"rank {first.rank} {_how(first)} in {first.step or first.current}",
            why=f"Rank {first.rank} ended before the measurements were done." + consequences(others),
            fix=f"see the last line outside torch in the traceback of rank {first.rank}"
            if first.failure
            else f"{_FIND_EXIT}, or an abort in a library that rank {first.rank} uses",
            ranks=(first.rank,),
            evidence=(Evidence(first.failure.traceback.rstrip(), (first.rank,)),) if first.failure else (),
        )

    def examine_ended(self, trace: Trace) -> Judgement:
        if trace.broken is None:
            if raised := _raised_beside_the_ranks(trace):
                return self.fail(
                    f"the process that started the ranks failed with {last_line(raised)}",
                    why="Every rank reached the end of its script. The process that started them did not, so whoever "
                    "runs it, such as a scheduler, counts the job as failed.",
                    fix="fix the exception at this line; this process is not a rank and has no process group",
                    where=raised.at,
                )
            ranks = plural(len(trace.ranks), "rank")
            return Passed(f"{ranks} of the training run ended well in {trace.seconds:.1f} s")
        first = trace.first_to_break()
        own_end = first and (first.killed_by or first.fault_of_rehearsal)
        if trace.timed_out or trace.ended_by_slurm or own_end:
            raise NotMeasured(trace.broken)
        if first is None:
            unfinished = [rank.rank for rank in trace.ranks if not rank.finished]
            return self.fail(
                f"the launcher ended with exit status {trace.status}, and {ranks_phrase(unfinished)} did not reach "
                "the end",
                why="No rank failed by itself, so the launcher did: its last lines show why.",
                fix="torchrun --standalone --nproc-per-node 1 --no-python true     # has to end with exit status 0",
                evidence=trace.log,
            )
        if len(trace.ranks) == 1 and not (trace.recorded or first.failure):
            return [self._failed_before_ranks(first)]
        return [self._failed_in_run(trace, rank) for rank in _with_errors_of_their_own(trace, first)]

    def examine_log(self, log: Log) -> Judgement:
        if first := first_cause(log):
            return [self._raised(log, first)]
        reason = log.search(_SCRIPT_NOT_STARTED, _OF_HYDRA) if log.failed else None
        if reason:
            return [self._script_not_started(log, reason)]
        reason = log.search(*_NOT_STARTED)
        if reason and not log.training and _ended_it(log, reason):
            return self.fail(
                f"the job did not start: {shorten(reason.match[0])}",
                why="The launcher could not start, so no rank printed anything.",
                fix=_NOT_STARTED[reason.match.re.pattern],
                explained_by=("DD808",),  # in another line of the container's error
                **log_fields(reason, role=Role.EXCEPTION),
            )
        return (
            NOT_IN_OUTPUT if log.failed or log.cut_off else Passed(f"no line of {log.read} reports a failure")
        )

    def _script_not_started(self, log: Log, reason: Reason) -> Finding:
        ranks = {end.rank for end in log.ended if end.code > 0 and end.rank is not None}
        ended = "ended at once"
        why = "Python could not start the script, or the script rejected its arguments. No rank joined the process "
        why += "group."
        fix = "run the same command without the launcher: python script.py ARGUMENTS"
        if reason.match.re.pattern == _OF_HYDRA:
            ended, fix = "ended", "HYDRA_FULL_ERROR=1 torchrun ...     # prints the traceback"
            why = "Hydra prints no traceback of such an error; the next lines of the output name it."
        return self.fail(
            f"{ranks_phrase(ranks, 'a process')} {ended}: {shorten(reason.match[0].rstrip(':'))}",
            why=why,
            fix=fix,
            **log_fields(reason, role=Role.EXCEPTION, ranks=ranks),
        )

    def _raised(self, log: Log, first: Raised) -> Finding:
        root = first.root
        ranks = ranks_of(log, root)
        raised_again = "" if root is first else f", and was raised again as {first.kind}"
        handled = root.cause if root is first and not root.explicit else None
        during = f". It was raised while {quote(shorten(handled.text))} was handled" if handled else ""
        details = log_fields(root, role=Role.EXCEPTION, ranks=ranks)
        # An exception raised again may have passed the script.
        details["where"] = details["where"] or first.where
        return self.fail(
            f"{ranks_phrase(ranks, 'a process')} failed with {root.kind}"
            + (f" {quote(shorten(_most_specific_line(root.message)))}" if root.message else ""),
            why=f"It is the first exception that ended a {'thread' if first.in_thread else 'process'} and is not about "
            "a peer or a launcher"
            f"{raised_again}{during}. {_order(log, first)}",
            fix=remedy(root.message)
            or "fix the exception at this line; the tracebacks of the other ranks are consequences",
            **details,
        )

    def _failed_in_run(self, trace: Trace, first: RankTrace) -> Finding:
        alike = tuple(rank.rank for rank in trace.ranks if rank.broke and _error(rank) == _error(first))
        apart = {rank.rank for rank in trace.ranks if _is_error_of_the_program(rank)}
        others = [rank.rank for rank in trace.ranks if rank.rank not in {*alike, *apart}]
        output = fold_libraries(first.failure.traceback.rstrip()) if first.failure else _last_output(first)
        why = f"{who(alike).capitalize()} ended before {verb(alike, 'its', 'the')} script did."
        fix = _fix_of_run(first, alike, others)
        if trace.restarts and _met_in_an_old_store(first):
            why = (
                "torchrun started the ranks anew, and they met in the store of the attempt before, which still has "
                "the addresses of processes that are gone: torch shares one store among all attempts."
            )
            fix = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 torchrun ...     # each attempt gets a new store"
        return self.fail(
            f"{who(alike)} {_how(first)} in the training run",
            why=why + consequences(others),
            fix=fix,
            ranks=alike,
            where=_place(first),
            evidence=(Evidence(output, alike),) if output else (),
            explained_by=_explained_by(first, trace),
        )

    def _failed_before_ranks(self, command: RankTrace) -> Finding:
        """A command that is none of a rank: no process of it was recorded."""
        output = _last_output(command)
        return self.fail(
            f"the command {_how(command)}, and no process of it was seen to import torch",
            why="It ended before a rank was started. Its last lines show why.",
            fix=_FIX_STATUS.get(command.exit_code or 0)
            or _fix_of_usage(command)
            or "run the same command by itself, in the same shell",
            evidence=(Evidence(output),) if output else (),
        )


def _raised_beside_the_ranks(trace: Trace) -> ScriptRaised | None:
    """The exception that ended the command, of a process that started ranks; None where it ended well, and where it
    only tells of a rank: gloo aborts now and then after a script's end.
    """
    parents = {(rank.host, rank.parent) for rank in trace.recorded.values() if trace.status}
    all_raised = (process.raised for process in trace.others if (process.host, process.pid) in parents)
    own = (
        raised
        for raised in all_raised
        if raised and not failures.says(f"{raised.type}: {raised.message}", failures.Says.PASSED_ON)
    )
    return max(own, key=lambda raised: raised.time, default=None)


def _most_specific_line(message: str) -> str:
    lines = [line for line in message.splitlines() if line.strip()]
    after = lines[lines.index(_LAST_ERROR) + 1 :] if _LAST_ERROR in lines else []
    if len(lines) > 1 and lines[0].endswith(":") and not after:
        return f"{lines[0]} {lines[1].strip()}"
    return next(iter(after), lines[0] if lines else "").strip()


def _ended_it(log: Log, reason: Reason) -> bool:
    """Whether an error stands near the end of the output, and Kubernetes did not get over it."""
    started = max((line.position for line in log.find(_STARTED)), default=0)
    if any(isinstance(source, Line) and source.position < started for source in reason.sources):
        return False
    lines = (source.line if isinstance(source, Raised) else source for source in reason.sources)
    last = max(line.position for line in lines)
    return log.last is not None and log.last.position - last <= _NEAR_THE_END


def _order(log: Log, first: Raised) -> str:
    """What the output shows of the order of failures, which separate files of ranks do not have in common."""
    if first.in_thread:
        return "Its process went on without that thread, and may wait for what it was to do; the others wait for it."
    elsewhere = (raised for raised in own_causes(log) if raised.line.file != first.line.file)
    rival = next((it for it in elsewhere if (it.kind, it.where) != (first.kind, first.where)), None)
    if rival is None or log.ended:
        return "The errors of other ranks afterwards are consequences."
    rank = "another process" if rival.rank is None else f"rank {rival.rank}"
    return f"But {rank} failed with {rival.kind}, too, in another file, so the order of the two is not known."


def _last_output(first: RankTrace) -> str:
    """The end of its output, without torch's warnings about connections."""
    lines = [line for line in first.output if not _CONNECTION_WARNING.search(line)]
    return "\n".join(lines[-_LAST_LINES:])


def _how(rank: RankRecord | RankTrace) -> str:
    if rank.failure:
        kind, message = as_raised(rank.failure.type, rank.failure.message)
        first_line = next(iter(message.splitlines()), "")
        return f"failed with {kind}" + (f" {quote(shorten(first_line))}" if first_line else "")
    return "ended without a message" if rank.exit_code is None else f"ended with exit status {rank.exit_code}"


def _is_error_of_the_program(rank: RankTrace) -> bool:
    if rank.failure is None or rank.fault_of_rehearsal or rank.is_victim:
        return False
    raised = rank.recording.raised if rank.recording is not None else None
    kind, message = as_raised(rank.failure.type, rank.failure.message)
    handled_another = raised is not None and bool(raised.causes)
    return kind in _OF_THE_PROGRAM and not handled_another and not _OF_NOTHING.search(message)


def _error(rank: RankTrace) -> object:
    """What ranks that fail alike have in common; the message of the same mistake may name a rank or a path."""
    if rank.failure is None or not _is_error_of_the_program(rank):
        return _how(rank)
    return as_raised(rank.failure.type, rank.failure.message)[0], _place(rank)


def _with_errors_of_their_own(trace: Trace, first: RankTrace) -> list[RankTrace]:
    """The first rank to fail, and the first one of each other exception that its failure does not explain."""
    by_error = {_error(first): first}
    for rank in filter(_is_error_of_the_program, trace.ranks):
        by_error.setdefault(_error(rank), rank)
    return list(by_error.values())[:_MOST_ERRORS]


def _met_in_an_old_store(first: RankTrace) -> bool:
    shared = first.recording and first.recording.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return bool(shared and first.failure and first.failure.at_closed_address)


def _fix_of_run(first: RankTrace, alike: tuple[int, ...], others: list[int]) -> str:
    victims = f"; {ranks_phrase(others)} failed only because {who(alike)} did" if others else ""
    if first.failure:
        traceback = f"in the traceback of {'rank ' + str(first.rank) if len(alike) == 1 else 'any rank'}"
        line = _place(first) or f"see the last line outside torch {traceback}"
        return remedy(first.failure.message) or f"{line}{victims}"
    return _fix_of_usage(first) or f"{_FIND_EXIT}, or a library that does{victims}"


def _fix_of_usage(first: RankTrace) -> str | None:
    usage = next((line.split() for line in first.output if line.startswith("usage: ")), None)
    return _FIX_USAGE.format(usage[1]) if usage else None


def _explained_by(first: RankTrace, trace: Trace) -> tuple[str, ...]:
    """The checks whose problem ends in this exception; a finding of theirs replaces this one."""
    if first.failure is None:
        return ()
    if first.failure.of_a_victim:
        return _PEER_MISSING
    owner = registry.by_exception(f"{first.failure.type}: {first.failure.message}")
    codes = (owner.code,) if owner else _UNREADY_REDUCER if _UNDEFINED in first.failure.message else ()
    if first.did_not_meet:
        codes = (*codes, "DD011")
    return (*codes, *_FILE_CHANGED) if _failed_on_file_of_another(first, trace) else codes


def _failed_on_file_of_another(first: RankTrace, trace: Trace) -> bool:
    """Whether it failed to load a checkpoint of another rank, or names a file that another rank changed."""
    recordings = trace.recorded
    traceback, message = (first.failure.traceback, first.failure.message) if first.failure else ("", "")
    if re.search(REFUSED, message):
        return False
    errors = (load.error for _, _, reader, load in exchanged(recordings) if reader == first.rank)
    loading = any(error is not None and error.splitlines()[0] in traceback for error in errors)
    return loading or changed_by_others(recordings, first.rank, message)


def _place(first: RankTrace) -> Where | None:
    """The script's line at which it ended; that of the DataLoader worker where the worker raised."""
    if first.failure and (place := place_in_worker(first.failure.message)):
        return place
    recording = first.recording
    raised = recording.raised if recording else None
    if raised and raised.at and first.failure and first.failure.type == raised.type:
        return raised.at
    if first.failure is not None:
        return innermost(first.failure.traceback)
    return recording.exit.at if recording and recording.exit else None
