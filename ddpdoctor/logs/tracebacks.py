"""Puts tracebacks together again, those of several processes that wrote into one stream too."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ddpdoctor.blame.frames import Frame
from ddpdoctor.logs.line_prefixes import START
from ddpdoctor.logs.log import Line, Raised

_FRAME = re.compile(
    r"[\s│|]*File [\"'](?P<file>[^\"']{1,500})[\"'], line (?P<line>\d+)(?:,? in (?P<function>.*))?"
)
_RICH_FRAME = re.compile(r"[\s│|]*(?P<file>/?[^\s:│]{1,500}\.py):(?P<line>\d+) in (?P<function>\S+)")
_NAME = r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*"
_EXCEPTION = re.compile(rf"\s*(?:\| +)?(?P<kind>{_NAME})(?::\s?(?P<message>.*))?$")
_SURE = re.compile(
    r"(?:Error|Exception|Interrupt|Exit|Iteration|Timeout|Failure|Fault|Warning|Empty|Full|Refused|Expired|Closed"
    r"|BadZipFile|gaierror|timeout|herror|NotFound|OutOfMemory)$"
)
_BARE = re.compile(r"(?:^|[a-z])(?:Error|Exception)$")
_FATAL = re.compile(r"(?P<kind>Fatal Python error): (?P<message>.*)")
_DUMP = re.compile(r"(?P<ends>Current thread|Thread) 0x\w+(?: \[.{0,80}\])? \(most recent call first\):")
"""By Python's fault handler: a thread's stack, below the line above, with the innermost frame first."""
_ABORT = re.compile(r"terminate called after throwing an instance of '(?P<kind>[\w:]+)'")
_ASYNCHRONOUS = re.compile(
    r"(?:\[Rank (?P<rank>\d{1,6})\] )?Collective WorkNCCL\(.{0,400}\) raised the following async exception: "
    r"(?P<message>.*)"
)
"""By torch's watchdog, of what NCCL told it."""
_WHAT = re.compile(r"\s*what\(\):\s+(?P<message>.*)")
_ORIGINAL = "Original Traceback"
_INSIDE = re.compile(rf"{re.escape(START)}: \(RANK (?P<rank>\d{{1,6}})\)")
"""In the message of an exception of torch.distributed.checkpoint, for each rank that raised one."""
_SPAWNED = re.compile(r"-- Process (?P<rank>\d{1,6}) terminated with the following error")
"""By torch.multiprocessing.spawn, above the traceback of a rank that it started."""
_SUMMARY = re.compile(r"\s*rank\s*: (?P<rank>\d{1,6}) \(local_rank: \d+\)")
"""By torchrun, above what a rank that failed has told of itself."""
_SUMMARY_TELLS = re.compile(rf"\s*traceback : {re.escape(START)}")
_IGNORED = "Exception ignored in"
_HANDLED = "During handling of the above exception"
_CAUSED = "The above exception was the direct cause"
_NEW_RECORD = re.compile(
    r"\[?\d{4}-\d\d-\d\d|[EWIF]\d{4} |\[[EWIF]\d* |\[rank|(?:INFO|ERROR|WARNING|DEBUG|srun|slurmstepd|usage)\b"
    r"|\s*\d+%\||\s*\+-|=====|-----|terminate called|frame #\d|\$ |\S+:\d+:\d+ \[\d|ncclComm|Fatal Python"
)
_LONGEST_MESSAGE = 40
_MOST_FRAMES = 100
_LONGEST_TEXT = 16_000
"""Characters of one message."""
_MOST_LABELS = 8192
MOST_RAISED = 4096
"""Exceptions kept of one output; the ones after that are repetitions."""


@dataclass
class _Open:
    """A traceback that has begun."""

    frames: list[Frame] = field(default_factory=list)
    indent: int = 0
    fresh: bool = True
    """Whether the line before was one of its own."""
    last: Line | None = None
    """The last one of its own."""


@dataclass
class _ProcessOutput:
    """What one process is printing."""

    open: _Open | None = None
    raised: Raised | None = None
    """The exception whose message may go on, or whose consequence may follow."""
    number: int | None = None
    """Its place among all; None where there were too many to keep it."""
    message: list[str] = field(default_factory=list)
    going_on: bool = False
    link: str | None = None
    ignores: bool = False
    """Whether Python goes on after the exception whose traceback comes next, which it raised while it cleaned up."""
    spawned: int | None = None
    """The rank whose traceback its parent passes on."""
    summed: int | None = None
    """The rank of whose end the launcher's summary tells at the moment."""
    aborts: str | None = None
    """The C++ exception that ends it, whose message comes next."""
    fatal: Raised | None = None
    """The fault that ends it, of which the stacks come next."""
    stack: list[Frame] | None = None
    """The frames of a thread that the fault handler is printing, the innermost first."""


class Tracebacks:
    """Fed line by line; gives back the exceptions."""

    def __init__(self) -> None:
        self._processes: dict[str, _ProcessOutput] = {}
        self._done: list[Raised | None] = []
        self._faults: list[tuple[Raised, list[Frame]]] = []

    def feed(self, line: Line, label: str) -> bool:
        """Take one line; whether it belongs to a traceback."""
        if (process := self._processes.get(label)) is None:
            if not _may_begin(line.text):
                return False
            if len(self._processes) >= _MOST_LABELS:
                self._processes.clear()
            process = self._processes[label] = _ProcessOutput()
        return self._take_fault(process, line) or self._take(process, line)

    def _take(self, process: _ProcessOutput, line: Line) -> bool:
        text = line.text
        if summed := _SUMMARY.match(text):
            process.summed = int(summed["rank"])
        if START in text:
            self._keep_message(process)
            process.spawned = process.summed if _SUMMARY_TELLS.match(text) else process.spawned
            process.open = _Open(last=line)
            process.link = _ORIGINAL if _ORIGINAL in text else process.link
            if inside := _INSIDE.match(text):
                process.link, process.spawned = _INSIDE.pattern, int(inside["rank"])
            return True
        if spawned := _SPAWNED.match(text):
            process.spawned = int(spawned["rank"])
            return True
        if frame := _frame(text):
            self._keep_message(process)
            process.open = process.open or _Open()
            process.open.indent = len(text) - len(text.lstrip())
            process.open.fresh, process.open.last = True, line
            if len(process.open.frames) < _MOST_FRAMES:
                process.open.frames.append(frame)
            return True
        if _IGNORED in text:
            process.ignores = True
            return True
        if _HANDLED in text or _CAUSED in text:
            process.link = _HANDLED if _HANDLED in text else _CAUSED
            return True
        return (
            self._take_abort(process, line)
            or self._take_exception(process, line)
            or self._go_on(process, line)
        )

    def _take_fault(self, process: _ProcessOutput, line: Line) -> bool:
        """A fault in native code has no exception: Python's fault handler prints the stacks of the threads."""
        if fatal := _FATAL.match(line.text):
            self._keep_message(process)
            process.fatal = Raised(fatal["kind"], fatal["message"], line, (), line.rank)
            return True
        if process.fatal and (dump := _DUMP.match(line.text)):
            process.stack = []
            if dump["ends"] == "Current thread":
                self._faults.append((process.fatal, process.stack))
            return True
        frame = None if process.stack is None else _frame(line.text)
        if frame is None or process.stack is None:
            process.stack = None
            return False
        process.stack.append(frame)
        return True

    def _take_abort(self, process: _ProcessOutput, line: Line) -> bool:
        """An exception of C++ that nobody caught has no traceback, and its message in the next line."""
        if match := _ABORT.search(line.text):
            process.aborts = match["kind"].replace("::", ".")
            return True
        if reported := _ASYNCHRONOUS.search(line.text):
            rank = int(reported["rank"]) if line.rank is None and reported["rank"] else line.rank
            self._keep_message(process)
            self._begin(process, Raised("DistBackendError", reported["message"], line, (), rank))
            return True
        what = _WHAT.match(line.text) if process.aborts else None
        if what is None or process.aborts is None:
            return False
        self._keep_message(process)
        self._begin(process, Raised(process.aborts, what["message"], line, (), line.rank))
        process.aborts = None
        return True

    def _take_exception(self, process: _ProcessOutput, line: Line) -> bool:
        if (match := _EXCEPTION.match(line.text)) is None or not _is_exception(match, process.open, line):
            return False
        self._keep_message(process)
        frames = tuple(process.open.frames) if process.open else ()
        rank = line.rank if process.spawned is None else process.spawned
        raised = Raised(match["kind"], match["message"] or "", line, frames, rank)
        process.spawned = None
        if process.ignores:
            process.open, process.ignores, process.going_on = None, False, False
            return True
        if process.link and process.raised:
            if process.link is _INSIDE.pattern:  # the line of the script is that of the exception around it
                raised = replace(raised, frames=(*process.raised.frames, *raised.frames))
            elif process.link is not _ORIGINAL:  # a DataLoader's worker's is raised again around its text
                raised = replace(raised, cause=process.raised, explicit=process.link is _CAUSED)
            if process.link is not _INSIDE.pattern or process.raised.kind.endswith("CheckpointException"):
                self._forget(process)
        self._begin(process, raised)
        return True

    def _begin(self, process: _ProcessOutput, raised: Raised) -> None:
        """An exception whose message may go on in the next lines."""
        process.raised, process.open, process.link = raised, None, None
        process.message, process.going_on = [raised.message], True
        process.number = None
        if len(self._done) < MOST_RAISED:
            process.number = len(self._done)
            self._done.append(raised)

    def _forget(self, process: _ProcessOutput) -> None:
        """The exception was raised again as another, which holds it."""
        if process.number is not None:
            self._done[process.number] = None

    def _go_on(self, process: _ProcessOutput, line: Line) -> bool:
        text = line.text
        if process.open:
            inside = not text.strip() or text[:1].isspace() or text[:1] in "│╭╰^~"
            process.open.fresh = inside
            process.open.last = line if inside else process.open.last
            return inside
        if not process.going_on:
            return False
        if not text.strip() or _NEW_RECORD.match(text) or len(process.message) >= _LONGEST_MESSAGE:
            self._keep_message(process)
            return False
        process.message.append(text)
        return True

    def _keep_message(self, process: _ProcessOutput) -> None:
        """The exception's message is complete."""
        if process.going_on and process.raised and len(process.message) > 1:
            whole = replace(process.raised, message="\n".join(process.message)[:_LONGEST_TEXT].rstrip())
            if process.number is not None:
                self._done[process.number] = whole
            process.raised = whole
        process.going_on = False

    def cut_off(self, position: int) -> Line | None:
        """The line at that place, where it is in the middle of a traceback."""
        last = (process.open.last for process in self._processes.values() if process.open)
        return next((line for line in last if line and line.position == position), None)

    @property
    def faults(self) -> tuple[Raised, ...]:
        """The faults that ended processes, with the stack of the thread that had it."""
        return tuple(replace(fatal, frames=tuple(reversed(stack))) for fatal, stack in self._faults)

    def finish(self) -> Iterator[Raised]:
        """All exceptions, in the order in which they were printed."""
        for process in self._processes.values():
            self._keep_message(process)
        yield from sorted(filter(None, self._done), key=lambda raised: raised.line.position)


def _may_begin(text: str) -> bool:
    begins = START in text or _IGNORED in text or bool(_ABORT.search(text) or _ASYNCHRONOUS.search(text))
    begins = begins or bool(_SPAWNED.match(text) or _SUMMARY.match(text) or _FATAL.match(text))
    return begins or _frame(text) is not None or _bare(_EXCEPTION.match(text))


def _frame(text: str) -> Frame | None:
    if "File" not in text and ".py:" not in text:
        return None
    if (match := _FRAME.match(text) or _RICH_FRAME.match(text)) is None:
        return None
    return Frame((match["function"] or "").strip(" │|"), match["file"], int(match["line"]))


def _bare(match: re.Match[str] | None) -> bool:
    """Whether it is an exception's last line though no traceback stands above: only names that leave no doubt."""
    if match is None or not match["message"] or match[0][:1].isspace():
        return False
    if match["kind"].startswith("nccl"):  # NCCL's own names stand inside the message of torch's exception
        return False
    return _BARE.search(match["kind"]) is not None


def _is_exception(match: re.Match[str], open_: _Open | None, line: Line) -> bool:
    if open_ is None:
        return _bare(match)
    text = line.text
    if len(text) - len(text.lstrip()) > open_.indent:
        return False
    if _SURE.search(match["kind"]):
        return True
    if match["message"] is None and re.match(r"[A-Z]\w*[a-z]\w*$", text):
        # A name alone may be another process's line, unless the launcher labels lines by rank.
        return open_.fresh and bool(open_.frames) and line.rank is not None
    named = "." in match["kind"] or (match["message"] is not None and re.search("[a-z][A-Z]", match["kind"]))
    return open_.fresh and bool(named)
