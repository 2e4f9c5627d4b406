"""Reads a job's output, one stream or many files, into a :class:`~ddpdoctor.logs.log.Log`."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ddpdoctor.logs import launches, line_prefixes, nccl_output, process_ends
from ddpdoctor.logs.launches import Launches, last_launch
from ddpdoctor.logs.line_prefixes import Prefixes
from ddpdoctor.logs.log import Line, Log, Raised
from ddpdoctor.logs.process_ends import Ends
from ddpdoctor.logs.scan import Scanner
from ddpdoctor.logs.secondary_errors import is_of_the_launcher, speaks_of_a_peer, was_left_alone
from ddpdoctor.logs.tracebacks import Tracebacks

MOST_LINES = 50_000
"""Lines kept; a job that fails in more is read no further for them."""
MOST_CHARACTERS = 10_000_000
"""Of all lines that are kept."""
LONGEST_TEXT = 4096
"""Characters of one line that are looked at; torch's longest messages have some 2,000."""
MOST_ALIKE = 64
"""Lines kept that differ in numbers only, of one rank."""
MOST_PROCESSES = 4096
MOST_NCCL_LINES = 200
"""Of one process."""

_NCCL = re.compile(r"(\S+:\d+):\d+ \[-?\d+\] .{0,200}?NCCL (?:INFO|WARN)|NCCL version")
_NCCL_WORDS = (
    "NCCL WARN",
    "NCCL version",
    "set by environment",
    "Bootstrap",
    "NET/IB : Using",
    "NET/Socket : Using",
    "Using network",
    "cudaDriverVersion",
    "coll channels",
    "Init COMPLETE",
    " via ",
)
_OF_CHECKS, _OF_ENDS, _OF_NCCL, _OF_HANGS, _OF_LAUNCHES = range(5)
_RUN_TOGETHER = re.compile(r"(?<=.)(?<!\]:)(?<!\]: )(?=\[(?:rank|default)\d{1,6}\]:)")
_TEXT = r'"((?:[^"\\]|\\.)*)"'
_CALL_STACK = re.compile(
    rf'"(?:py_callstack|exc_info|exc_text|exception|traceback|stack_?trace|error\.stack_trace)": ?{_TEXT}'
)
"""Where torch's error files, and loggers that write JSON, put a traceback."""
_REST_OF_TEXT = re.compile(r'(?:[^"\\]|\\.)*')
_MESSAGE = re.compile(rf'[{{,] ?"(?:log|message|msg|textPayload)": ?{_TEXT}')
"""A line of Docker's own files, and of loggers that write JSON."""
_RANK_IN_JSON = re.compile(r'\{(?:[^{}]*(?:\{[^{}]*\}[^{}]*)*,)? ?"(?:global_)?rank": ?"?(\d{1,6})\b')
"""Of the object itself: in one that it holds, a rank may be that of a low-rank matrix."""
_RANK_IN_LOGFMT = re.compile(r"(?:^|\s)(?:global_)?rank=(\d{1,6})\b")
_OF_SAGEMAKER = "ErrorMessage "
_JOINED = re.compile(
    r" +(?=Traceback \(most recent call last\)|File \"[^\"]{1,500}\", line \d|[EW]\d{4} |\[rank\d{1,6}\]:"
    r"|(?:[A-Za-z_]\w{0,40}\.){0,6}[A-Z]\w{0,60}(?:Error|Exception): )"
)
"""Where SageMaker's toolkit, which reports the end of stderr in one line, has joined lines."""
_JOINED_SOURCE = re.compile(r"(File \"[^\"]{1,500}\", line \d{1,9}, in [\w<>.]{1,200}) +")
_LONGEST_LABELS = 80
"""Characters in front of an object of JSON."""
_HUNG_WORDS = ("further output", "more output", "hang", "stuck", "hung", "DUE TO TIME LIMIT")
_HUNG = re.compile(
    r"(?i)^\W*(?:and )?(?:then )?(?:there is )?no (?:further|more) output"
    r"|(?:it |job |training |process(?:es)? |program )?(?:hangs?|stuck|hung)"
    r"(?: here| forever| at this point| indefinitely)\b|DUE TO TIME LIMIT"
)
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True)
class Stream:
    """One file, or what comes through a pipe."""

    name: str
    chunks: Iterable[bytes]
    rank: int | None = None
    """Whose output it is, where the name of its folder tells."""


def read(streams: Iterable[Stream], words: Sequence[str]) -> Log:
    """Everything that the streams say, in one pass over each; the checks ask for ``words`` (``Check.log_words``)."""
    reading = _Reading(words)
    for stream in streams:
        reading.take(stream)
    return reading.log()


class _Reading:
    def __init__(self, words: Sequence[str]) -> None:
        self._scanner = Scanner((words, process_ends.WORDS, _NCCL_WORDS, _HUNG_WORDS, launches.WORDS))
        self._lines: list[Line] = []
        self._alike: Counter[tuple[str, int | None]] = Counter()
        self._tracebacks = Tracebacks()
        self._ends = Ends()
        self._nccl: dict[str, list[str]] = defaultdict(list)
        self._hung: Line | None = None
        self._hosts: dict[int, str] = {}
        self._launches = Launches()
        self._prefixes = Prefixes()
        self._characters = 0
        self._starts: list[tuple[int, Stream]] = []
        """Before which line of all each stream begins."""

    def take(self, stream: Stream) -> None:
        """Read one stream to its end."""
        before = self._scanner.read
        self._prefixes = Prefixes()
        self._starts.append((before, stream))
        for batch in self._scanner.scan(stream.chunks):
            at = Line("", batch.place - before, stream.name, stream.rank, batch.place)
            rank = stream.rank
            for text in _parts(batch.raw):
                rank = self._line(text, at, batch.groups, rank)

    def _line(self, raw: str, at: Line, groups: frozenset[int], rank: int | None) -> int | None:
        """Take one line; the rank that wrote it: the given one, as what was drawn over a line, or that of its label."""
        labelled = self._prefixes.strip(raw)
        rank = rank if labelled.rank is None else labelled.rank
        line = Line(labelled.text, at.number, at.file, rank, at.position, labelled.numbering)
        if labelled.host and rank is not None:
            self._hosts.setdefault(rank, labelled.host)
        self._tracebacks.feed(line, f"{at.file} {labelled.label}")
        if _OF_ENDS in groups:
            self._ends.feed(line)
        if _OF_NCCL in groups:
            self._take_nccl(line)
        if _OF_LAUNCHES in groups:
            self._launches.feed(line)
        if _OF_HANGS in groups and _HUNG.search(line.text):
            self._hung = line
        if _OF_CHECKS in groups:
            self._keep(line)
        return rank

    def _keep(self, line: Line) -> None:
        alike = (_DIGITS.sub("", line.text), line.rank)
        if len(self._alike) > MOST_LINES:
            self._alike.clear()
        self._alike[alike] += 1
        full = len(self._lines) >= MOST_LINES or self._characters >= MOST_CHARACTERS
        if self._alike[alike] <= MOST_ALIKE and not full:
            self._lines.append(line)
            self._characters += len(line.text)

    def _take_nccl(self, line: Line) -> None:
        if (match := _NCCL.search(line.text)) is None:
            return
        process = match[1] or ""
        known = process in self._nccl or len(self._nccl) < MOST_PROCESSES
        if known and len(self._nccl[process]) < MOST_NCCL_LINES:
            self._nccl[process].append(line.text)

    def log(self) -> Log:
        """What was read."""
        scanner = self._scanner
        training = tuple(self._located(place, raw) for place, raw in scanner.training)
        for place, raw in scanner.bars:
            self._ends.feed_bar(self._located(place, raw))
        ends, by_tasks = self._ends.ended.values(), self._launches.by_tasks
        ended = tuple(launches.of_ranks(ends) if by_tasks else ends)
        log = Log(
            lines=tuple(self._lines),
            raised=tuple(self._tracebacks.finish()),
            faults=self._tracebacks.faults,
            ended=ended,
            stopped=frozenset(self._ends.stopped),
            waits=tuple(self._ends.waits.values()),
            reached=dict(self._ends.reached),
            progress=tuple(self._ends.progress.values()),
            nccl={process: nccl_output.parse("\n".join(lines)) for process, lines in self._nccl.items()},
            world_size=self._ends.world_size,
            read=scanner.read,
            training=training,
            hung=self._hung,
            succeeded=self._launches.succeeded,
            last=self._located(*scanner.last) if scanner.last else None,
            cut_off=self._tracebacks.cut_off(scanner.last[0]) if scanner.last else None,
            host_of={
                **self._hosts,
                **{end.rank: end.host for end in ended if end.rank is not None and end.host},
            },
        )
        log = launches.with_ranks(log, by_tasks)
        went_on = not (log.failed or log.hung)

        alone = all(map(was_left_alone, log.raised))
        survived = (
            replace(
                item,
                survived=log.survives(item.line)
                # In a thread that is none of the script's, such as a logger's that sends to a server.
                or (went_on and item.in_thread and item.where is None)
                or (was_left_alone(item) and not alone),
            )
            for item in log.raised
        )
        judged = replace(
            log,
            raised=_with_rank(tuple(survived), log),
            # The ends of an attempt after which the launcher started its ranks once more, and they trained.
            ended=tuple(item for item in log.ended if not log.went_on_after(item.line)),
            waits=tuple(item for item in log.waits if not log.went_on_after(item.line)),
        )
        return last_launch(judged, self._launches.begins)

    def _located(self, place: int, raw: bytes) -> Line:
        before, stream = next(start for start in reversed(self._starts) if start[0] < place)
        begins, _, drawn = raw.rstrip(b"\r").rpartition(b"\r")
        first, shown = (
            line_prefixes.strip(text[:1000].decode("utf-8", "replace")) for text in (begins or drawn, drawn)
        )
        ranks = (rank for rank in (shown.rank, first.rank, stream.rank) if rank is not None)
        return Line(shown.text, place - before, stream.name, next(ranks, None), place, shown.numbering)


def _with_rank(raised: tuple[Raised, ...], log: Log) -> tuple[Raised, ...]:
    """The exceptions, of the ranks that failed by an exit status where all are alike and no prefix names one."""
    ranks = (end.rank for end in log.ended if end.code > 0 and end.pid not in log.stopped)
    failed = list(dict.fromkeys(ranks))
    causes = [it for it in raised if not (it.survived or is_of_the_launcher(it) or speaks_of_a_peer(it))]
    alike = len({(it.kind, it.where) for it in causes}) == 1 and all(it.rank is None for it in raised)
    if not alike or not 1 <= len(failed) <= len(causes) or None in failed:
        return raised
    rank_of = {id(item): failed[min(number, len(failed) - 1)] for number, item in enumerate(causes)}
    return tuple(replace(item, rank=rank_of.get(id(item), item.rank)) for item in raised)


def _parts(raw: bytes) -> Iterator[str]:
    """What one line holds: what was drawn over it, lines of ranks that run together, a traceback inside of JSON."""
    whole = raw.decode("utf-8", "replace").rstrip("\r")
    json_text = _json_object(whole)
    stack = match[1] if (match := _CALL_STACK.search(whole)) else _escaped_traceback(json_text or whole)
    message = _MESSAGE.search(json_text) if json_text and not stack else None
    ranks = _RANK_IN_JSON.match(json_text) if json_text else _RANK_IN_LOGFMT.search(whole) if stack else None
    label = f"[rank{ranks[1]}]: " if ranks else ""
    shown = _unescaped(message[1], whole) if message else whole.replace(stack, "") if stack else whole
    if shown.startswith(_OF_SAGEMAKER):
        shown = _JOINED.sub("\n", _JOINED_SOURCE.sub(r"\1\n    ", shown))
    lines = (*shown.rstrip("\n").split("\n"), *(_unescaped(stack, "").splitlines() if stack else ()))
    for line in (label + text for text in lines) if label else lines:
        for drawn in line.split("\r"):
            for text in _apart(drawn):
                yield text[:LONGEST_TEXT]


def _json_object(whole: str) -> str:
    """The object of JSON that a line begins with, behind its labels; empty where it does not. Exports put a comma
    behind it, and collectors cut long lines."""
    begins = whole.find("{", 0, _LONGEST_LABELS)
    behind_labels = not begins or (begins > 0 and line_prefixes.strip(whole).text == whole[begins:])
    return whole[begins:] if behind_labels else ""


def _apart(line: str) -> list[str]:
    """The lines of ranks that ran together; what stands before the first label may be a label, too."""
    if line.find("[rank", 1) < 0 and line.find("[default", 1) < 0:
        return [line]
    first, *others = _RUN_TOGETHER.split(line)
    if others and len(line_prefixes.strip(first + others[0]).text) <= len(others[0]):
        return [first + others[0], *others[1:]]
    return [first, *others]


def _unescaped(text: str, otherwise: str) -> str:
    """What a text of JSON stands for."""
    try:
        return str(json.loads(f'"{text}"'))
    except ValueError:
        return otherwise


def _escaped_traceback(whole: str) -> str:
    """The text of a JSON object, or of key="value", that holds a traceback, as it is written there."""
    at = whole.find(line_prefixes.START + ":\\n")
    begins = whole.rfind('"', 0, max(at, 0)) + 1
    if at < 0 or whole[begins - 2 : begins - 1] == "\\":  # what it holds is quoted once more
        return ""
    match = _REST_OF_TEXT.match(whole, begins)
    return match[0] if match else ""
