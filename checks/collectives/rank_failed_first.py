import re

from ddpdoctor import registry
from ddpdoctor.blame.causes import FailedAndWaits
from ddpdoctor.blame.frames import Frame, is_of_script, where_of
from ddpdoctor.blame.wording import cause_fields, others_wait, wait_phrase, who
from ddpdoctor.check import reports
from ddpdoctor.group.group_record import GroupRecord, RankRecord, Stage
from ddpdoctor.judge import NotMeasured
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, Raised, Reason, log_fields
from ddpdoctor.logs.secondary_errors import first_cause, own_causes, ranks_of
from ddpdoctor.model import Evidence, Family, Finding, Judgement, Passed, Role, Source, Where
from ddpdoctor.redact import quote
from ddpdoctor.text import plural, ranks_phrase, shorten
from ddpdoctor.trace import RankTrace, Trace
from ddpdoctor.trace.files import changed_by_others, exchanged
from ddpdoctor.trace.raised import remedy
from ddpdoctor.trace.standstill_check import StandstillCheck

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>\S+))?')
_RAISED_AGAIN = re.compile(
    r"Original Traceback \(most recent call last\):\n(?P<frames>(?:[ \t].*\n)+)(?P<type>[\w.]+)(?:: (?P<message>.*))?"
)
"""In the message of what a rank raises for its DataLoader worker."""
_BY_THE_WAY = re.compile(
    r"^(?:\[rank\d+\]:)?\s*frame #\d+: |TCPStore\.cpp|socket\.cpp|Exception raised from "
)
"""Lines of torch's warnings about connections, and the C++ frames below them."""
_LOSE_PEERS = ("DD106", "DD225", "DD301", "DD302", "DD303", "DD305", "DD308", "DD309")
"""Diseases that leave a rank alone in a collective, whose peers have gone."""
_SPOIL_FILES = ("DD401", "DD402", "DD020")
"""Diseases by which a rank finds no file, half of one, or one too many, because of another rank."""
_REFUSED = (
    r"^(?:[\w.-]+\.py|python[\d.]* -m [\w.]+): error: \S.*"
    r"|(?:^|(?<=/))python[\d.]*: "
    r"(?:can't open file|can't find '__main__' module|No module named|Error while finding) .*"
)
"""How a script's parser of arguments, and Python itself, say that they do not begin; both without a traceback."""
_NOT_STARTED = (
    r"(?:torchrun|accelerate|deepspeed|mpirun|srun|python3?): (?:command )?not found",
    r"execve\(\): .{1,200}: (?:No such file or directory|Permission denied)",
    r"^srun: (?:fatal|error): (?:Unable to (?:create|allocate|confirm)|.{0,200}mutually exclusive).*",
    r"^docker: Error response from daemon: .*",
    r"There are not enough slots available in the system.*",
    r"^pdsh@\S+: \S+: ssh exited with exit code 255",
)
"""How shells, schedulers and containers say that they do not start what was to start the ranks."""
_NEAR_THE_END = 12
"""Lines of an output that has not much more to say."""
_LAST_ERROR = "Last error:"
"""In NCCL's message, above the line that says most."""
_LAST_LINES = 10
"""Of the output of a rank that ended without an exception."""


class RankFailedFirst(StandstillCheck):
    """One rank failed, and the others are its victims.

    What it finds:
        The first rank to fail, with its exception and line. The other ranks fail a moment later, because their
        peer is gone ("connection closed by peer"), or are stopped by the launcher; their errors say nothing. Also a
        rank whose exception has not ended it, since a `finally` or `except` waits for the others first.

    Why it matters:
        A job that ends this way shows the traceback of every rank, most of them about the connection. The one
        that names the cause is easily missed, or stands above thousands of other lines.

    Example:
        Rank 2 meets a broken image and raises; ranks 0, 1 and 3 report "Connection closed by peer".

    Fix:
        Look at the exception of the rank named here, and at none of the others.
    """

    code = "DD304"
    name = "rank-failed-first"
    family = Family.COLLECTIVES
    title = "every rank reaches its end"
    names_no_cause_in = (Source.RUN, Source.LOG)
    log_words = (
        ": error: ",
        "can't open file",
        "can't find '__main__'",
        ": No module named",
        ": Error while finding",
        "not found",
        "execve()",
        "srun: ",
        "docker: Error",
        "not enough slots",
        "ssh exited",
    )
    explained_by = ("DD005", "DD215", "DD224")
    """They know some exceptions better, and only by what led to them."""

    @reports(FailedAndWaits)
    def _failed_and_waits(self, cause: FailedAndWaits) -> Finding:
        handled, place, ranks = cause.handled, cause.own_wait, who(cause.culprits)
        message = f" {quote(shorten(handled.message))}" if handled.message else ""
        waits = wait_phrase(cause.culprits, place).removeprefix(f"{ranks} ")
        return self.fail(
            f"{ranks} failed with {handled.type}{message} and {waits}, while {others_wait(cause)}",
            why=f"The exception has not ended {ranks}: the `finally` or `except` that it came to waits in {place.what} "
            "first, which the others do not join. Its traceback shows at the timeout of the process group, if ever.",
            fix="look at the line named here; and call no collective where an exception may be under way:\n"
            "train()\ndist.barrier()     # behind the work, not in its finally\ndist.destroy_process_group()",
            **cause_fields(cause),
        )

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        first = ranks.first_to_break()
        if ranks.broken is None:
            return Passed(f"all {len(ranks.ranks)} ranks of the live group reached their end")
        killed = first is not None and first.failure is None and (first.exit_code or 0) < 0
        if first is None or killed or ranks.unwritable or ranks.stage is not Stage.MEASURE:
            raise NotMeasured(ranks.broken)
        return [self._failure(ranks, first)]

    def examine_ended(self, trace: Trace) -> Judgement:
        if trace.broken is None:
            return Passed(
                f"{plural(len(trace.ranks), 'rank')} of the training run ended well in {trace.seconds:.1f} s"
            )
        first = trace.first_to_break()
        if trace.timed_out or (first and first.killed_by):
            raise NotMeasured(trace.broken)
        return [self._failed_in_run(trace, first) if first else self._launcher_failed(trace)]

    def examine_log(self, log: Log) -> Judgement:
        first = first_cause(log)
        if first:
            return [self._raised(log, first)]
        refused = log.search(_REFUSED) if log.failed else None
        if refused:
            return [self._never_began(log, refused)]
        missed = log.search(*_NOT_STARTED)
        if missed and not log.training and _ends_with(log, missed):
            return [self._not_started(missed)]
        return NOT_IN_OUTPUT if log.failed else Passed(f"no line of {log.read} tells of a failure")

    def _never_began(self, log: Log, told: Reason) -> Finding:
        ranks = {one.rank for one in log.ended if one.code > 0 and one.rank is not None}
        return self.fail(
            f"{ranks_phrase(ranks) if ranks else 'a process'} ended at once: {shorten(told.match[0])}",
            why="Python could not start the script, or the script did not take its arguments. No rank reached its "
            "process group.",
            fix="run the same command by hand without the launcher: python script.py ARGUMENTS",
            **log_fields(told, role=Role.EXCEPTION, ranks=ranks),
        )

    def _not_started(self, told: Reason) -> Finding:
        return self.fail(
            f"the job did not start: {shorten(told.match[0])}",
            why="What was to start the ranks could not begin, so that no rank said anything.",
            fix="run the command of that line by hand, in the same shell, container or allocation",
            **log_fields(told, role=Role.EXCEPTION),
        )

    def _raised(self, log: Log, first: Raised) -> Finding:
        root = first.root
        ranks = ranks_of(log, root)
        others = "" if root is first else f", and was raised again as {first.kind}"
        said = log_fields(root, role=Role.EXCEPTION, ranks=ranks)
        said["where"] = said["where"] or first.where  # what was raised again may have passed the script
        return self.fail(
            f"{ranks_phrase(ranks) if ranks else 'a process'} failed with {root.kind}"
            + (f" {quote(shorten(_telling(root.message)))}" if root.message else ""),
            why="It is the first exception that ended a process and is not about a peer or a launcher"
            f"{others}. {_order(log, first)}",
            fix="look at the line named here; the tracebacks of the others are those of victims",
            **said,
        )

    def _failed_in_run(self, trace: Trace, first: RankTrace) -> Finding:
        alike = tuple(rank.rank for rank in trace.ranks if rank.broke and _what(rank) == _what(first))
        others = [rank.rank for rank in trace.ranks if rank.rank not in alike]
        who = ranks_phrase(alike)
        shown = first.failure.traceback.rstrip() if first.failure else _last_words(first)
        return self.fail(
            f"{who} {_what(first)} in the training run",
            why=f"{who.capitalize()} ended before {'its' if len(alike) == 1 else 'the'} script did. "
            + (f"What {ranks_phrase(others)} said afterwards is a consequence." if others else ""),
            fix=_fix_of_run(first, alike, others),
            ranks=alike,
            where=_place(first),
            evidence=(Evidence(shown, alike),) if shown else (),
            explained_by=_known_as(first, trace),
        )

    def _launcher_failed(self, trace: Trace) -> Finding:
        unfinished = [rank.rank for rank in trace.ranks if not rank.finished]
        return self.fail(
            f"the launcher ended with exit status {trace.status}, and {ranks_phrase(unfinished)} did not reach "
            "the end",
            why="No rank failed by itself, so what went wrong is the launcher's: its last lines say it.",
            fix="torchrun --standalone --nproc-per-node 1 --no-python true\nhas to end with exit status 0",
            evidence=tuple(Evidence(line) for line in trace.log),
        )

    def _failure(self, ranks: GroupRecord, first: RankRecord) -> Finding:
        others = [rank.rank for rank in ranks.ranks if rank.rank != first.rank]
        what, where = _what(first), first.step or first.current
        return self.fail(
            f"rank {first.rank} {what} in {where}",
            why=f"Rank {first.rank} ended before the group's work was done. "
            + (f"What {ranks_phrase(others)} said afterwards is a consequence." if others else ""),
            fix=_fix(first),
            ranks=(first.rank,),
            evidence=(Evidence(first.failure.traceback.rstrip(), (first.rank,)),) if first.failure else (),
        )


def _telling(message: str) -> str:
    """The line of a message that says most."""
    lines = [line for line in message.splitlines() if line.strip()]
    after = lines[lines.index(_LAST_ERROR) + 1 :] if _LAST_ERROR in lines else []
    return next(iter(after), lines[0] if lines else "").strip()


def _ends_with(log: Log, told: Reason) -> bool:
    """Whether the output ends soon after what was told."""
    last = max(one.line.position if isinstance(one, Raised) else one.position for one in told.sources)
    return log.last is not None and log.last.position - last <= _NEAR_THE_END


def _order(log: Log, first: Raised) -> str:
    """What the output shows of the order of failures: files of single ranks have none in common."""
    elsewhere = [cause for cause in own_causes(log) if cause.line.file != first.line.file]
    rival = next((one for one in elsewhere if (one.kind, one.where) != (first.kind, first.where)), None)
    if rival is None or log.ended:
        return "What other ranks said afterwards is a consequence."
    who = "another process" if rival.rank is None else f"rank {rival.rank}"
    return (
        f"But {who} failed with {rival.kind}, too, in a file of its own, which does not show who was first."
    )


def _last_words(first: RankTrace) -> str:
    """The end of its output, without what torch's own warnings print of the C++ below them."""
    return "\n".join([line for line in first.output if not _BY_THE_WAY.search(line)][-_LAST_LINES:])


def _what(first: RankRecord | RankTrace) -> str:
    if first.failure:
        original = _RAISED_AGAIN.search(first.failure.message)
        kind = original["type"] if original else first.failure.type
        message = (original["message"] or "") if original else first.failure.message
        told = f" {quote(shorten(line))}" if (line := next(iter(message.splitlines()), "")) else ""
        return f"failed with {kind}{told}"
    return (
        f"ended with exit status {first.exit_code}" if first.exit_code is not None else "ended without a word"
    )


def _fix(first: RankRecord) -> str:
    if first.failure:
        return f"look at the last line of rank {first.rank}'s traceback that is not torch's"
    return f"find what ends the process there: sys.exit, os._exit, or an abort in a library that rank {first.rank} uses"


def _fix_of_run(first: RankTrace, alike: tuple[int, ...], others: list[int]) -> str:
    whose = f"rank {first.rank}'s" if len(alike) == 1 else "any rank's"
    if any(line.startswith("usage:") for line in first.output) and first.failure is None:
        return "give the script the arguments that it asks for; they stand after it: ddpdoctor check train.py ARGS..."
    victims = f"; {ranks_phrase(others)} only followed" if others else ""
    if first.failure:
        known = remedy(first.failure.message)
        return known or f"look at the last line of {whose} traceback that is not torch's{victims}"
    return f"find what ends the process there: sys.exit, os._exit, or a library that does{victims}"


def _known_as(first: RankTrace, trace: Trace) -> tuple[str, ...]:
    """The checks whose disease ends in this exception; where one has a finding, that is the better one."""
    if first.failure is None:
        return ()
    if first.failure.of_a_victim:
        return _LOSE_PEERS
    owner = registry.by_exception(f"{first.failure.type}: {first.failure.message}")
    told = (owner.code,) if owner else ()
    return (*told, *_SPOIL_FILES) if _met_another_in_a_file(first, trace) else told


def _met_another_in_a_file(first: RankTrace, trace: Trace) -> bool:
    """Whether it ended over a file of another rank: by reading a checkpoint, or by what an OSError names."""
    recordings = {rank.rank: rank.recording for rank in trace.ranks if rank.recording is not None}
    said, message = (first.failure.traceback, first.failure.message) if first.failure else ("", "")
    errors = (load.error for _, _, reader, load in exchanged(recordings) if reader == first.rank)
    read = any(error is not None and error.splitlines()[0] in said for error in errors)
    return read or changed_by_others(recordings, first.rank, message)


def _place(first: RankTrace) -> Where | None:
    """The user's line at which it ended; that of a DataLoader worker where that raised."""
    original = _RAISED_AGAIN.search(first.failure.message) if first.failure else None
    if original and (place := _innermost(original["frames"])):
        return place
    recording = first.recording
    raised = recording.raised if recording is not None else None
    if raised is not None and raised.at is not None and first.failure and first.failure.type == raised.type:
        return raised.at
    if first.failure is not None:
        return _innermost(first.failure.traceback)
    return recording.exit.at if recording is not None and recording.exit is not None else None


def _innermost(traceback: str) -> Where | None:
    """The innermost line of the script's own: not torch's, nor another package's."""
    frames = [
        Frame(found["function"] or "", found["file"], int(found["line"]))
        for found in _FRAME.finditer(traceback)
    ]
    own = [frame for frame in frames if is_of_script(frame)]
    return where_of(own[-1]) if own else None
