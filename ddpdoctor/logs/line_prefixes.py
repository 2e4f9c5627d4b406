"""A line by itself: without what launchers, containers and terminals put around it; and what its wording makes it."""

import re
from dataclasses import dataclass
from itertools import islice

from ddpdoctor.recorder.launchers import LAUNCHERS, Numbering, any_of, fields, place_of
from ddpdoctor.text import uncoloured

_OTHERS = r"""
      \d+(?:\.\d+)?s\t\d+\t                                              # notebooks: seconds and line number
    | \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)\s(?:std(?:out|err)\s[FP]\s)?   # containers
    | \S{1,80}\s\[std(?:out|err)\]\s                                     # collectors that name the stream
    | \[\d{4}-\d\d-\d\d[\ T]\d\d:\d\d:\d\d\]\s                             # ts and its kin
    | [A-Z][a-z]{2}\ [\ \d]\d\ \d\d:\d\d:\d\d\ \S{1,80}\ [^\s:\[]{1,80}\[\d+\]:\s   # journalctl, syslog
    | \d{4}-\d\d-\d\d[\ T]\d\d:\d\d:\d\d(?:[.,]\d+)?\s            # loggers, in front of each line
      (?=Traceback|\s|\[rank|[\w.]+(?:Error|Exception)\b)
    | (?:ERROR|WARNING|INFO|CRITICAL)\s+                                 # loggers, over a traceback of several lines
      (?:\d\d-\d\d\s\d\d:\d\d:\d\d\s+(?:\[?[\w./]+:\d+\]\s?)?|(?=\s*File\ "|Traceback|\s\s|[\w.]+Error\b))
    | (?:(?=[\w.-]*\d)(?P<host>[A-Za-z][\w.-]*):|[(\[](?=[\w.-]*\d)(?P<host_1>[A-Za-z][\w.-]*)[)\]])\s   # pdsh
      (?=Traceback|\s\s|\t|\[|[WE]\d{4}|[\w.]+(?:Error|Exception)\b)
    """
"""What loggers, collectors and shells put before a line."""
_BY_LAUNCHERS = [launcher for launcher in LAUNCHERS if launcher.label]
_LABEL = re.compile(any_of((*(launcher.label for launcher in _BY_LAUNCHERS), _OTHERS)), re.VERBOSE)
_MOST_LABELS = 4
START = "Traceback (most recent call last)"
_LONGEST_PREFIX = 120
_IS_PREFIX = re.compile(
    r"(?!.*(?:Error|Exception|Exit|Interrupt|Warning): $)"
    r"(?:(?=.*\d)(?!.*(?:%\||it/s|[{\"]))\S.*[\s\]:>|)-]$|[A-Za-z][\w.@-]{0,60}: $)"
)
"""Of what stands before a traceback: not a progress bar, and not the key of an object in JSON; or one word. And not an
exception whose message is a traceback."""
_MOST_SHAPES = 16
_TIME = re.compile(r"\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d(?:[.,]\d+)?")
_NAMES_RANK = re.compile(r"(?i)\brank\W{0,2}(\d{1,6})\b|^\[(\d{1,6})\] $")
"""In words, or as Intel MPI and MPICH label the lines of each rank."""


@dataclass(frozen=True)
class Labelled:
    """A line without its labels."""

    text: str
    label: str = ""
    """What stood before it, as far as it tells one process from another."""
    rank: int | None = None
    host: str = ""
    """The host, container or pod that the labels name; empty where the rank may be one among those of its node."""
    numbering: Numbering = Numbering.RANK
    """What the label numbers."""


def strip(raw: str) -> Labelled:
    """The line as its process wrote it, and which process that was as far as the labels tell."""
    text = uncoloured(raw)
    process, rank, host, numbering = "", None, "", Numbering.RANK
    for _ in range(_MOST_LABELS):
        if (match := _LABEL.match(text)) is None:
            break
        named = fields(match)
        host = host or named.get("host", "")
        if number := named.get("rank") or named.get("local"):
            rank = int(number)
            numbering = Numbering.LOCAL_RANK if "local" in named else _BY_LAUNCHERS[place_of(match)].numbering
        if not process and (one := number or named.get("pid")):  # the innermost is not on every line
            process = f"{place_of(match)}:{one}"
        text = text[match.end() :]
    host_of_rank = "" if numbering is Numbering.LOCAL_RANK else host
    return Labelled(text, f"{host} {process}" if host else process, rank, host_of_rank, numbering)


class Prefixes:
    """The prefixes of one stream: those that :func:`strip` knows, and those that its tracebacks show.

    What stands before the first line of a traceback stands before every line of that process. Launchers differ in
    host, time and process number, so the prefix is known by its shape, with any numbers.
    """

    def __init__(self) -> None:
        self._shapes: dict[str, re.Pattern[str]] = {}

    def strip(self, raw: str) -> Labelled:
        """As :func:`strip`, and without a prefix of the shape that was learned."""
        labelled, text = strip(raw), uncoloured(raw)
        before, start, _ = text.partition(START)
        is_prefix = start and len(before) <= _LONGEST_PREFIX and _IS_PREFIX.match(before)
        if is_prefix and len(self._shapes) < _MOST_SHAPES:
            shape = re.sub(r"\d+", r"\\d+", re.escape(before))
            self._shapes.setdefault(shape, re.compile(shape))
        matches = (shape.match(text) for shape in self._shapes.values()) if labelled.text == text else ()
        if (match := next(filter(None, matches), None)) is None:
            return labelled
        rest, rank = strip(text[match.end() :]), _NAMES_RANK.search(match[0])
        label = rest.label or _TIME.sub("", match[0]).strip()
        number = next(filter(None, rank.groups())) if rank and rest.rank is None else rest.rank
        return Labelled(rest.text, label, None if number is None else int(number), rest.host)


# -- its wording ------------------------------------------------------------------------------------------

_DONE = re.compile(r"(?i)\b(?:finished|completed?|done|saved)\b")
_WORD = re.compile(r"[\w.:-]+")
_FIRST_WORDS = 5
HELP = re.compile(r"\s+-{1,2}[A-Za-z][\w-]*[ ,=]")
"""How an option begins in the text of ``--help``, which speaks of errors too."""
BY_THE_SYSTEM = re.compile(
    r"NCCL WARN|NVRM|slurmstepd: |srun: error|oom[-_]kill|Out of memory: Kill|\[[EF]\d{3,4} "
    r"|PBS: job killed|\bTERM_[A-Z]+LIMIT|^\S*: line \d+: .{0,40}Killed"
    r"|^(?!\S*(?:Error|Exception)\b)[\w./-]{1,80}: (?:error|cannot|failed|write) .{0,300}: [A-Z]"
)
"""What a library, a tool or the system writes of an error, as no training does that got over one."""
_ATTEMPT = re.compile(
    r"^(?:\[W(?:\d{3,4}\b|\s)|W\d{4} |INFO\b|WARNING\b|\S{0,40}\[?(?:INFO|WARNING)\]|Waiting in store)"
)


def says_done(text: str) -> bool:
    """Whether it begins with the words that something is done."""
    return any(_DONE.search(word[0]) for word in islice(_WORD.finditer(text), _FIRST_WORDS))


def is_of_an_attempt(text: str) -> bool:
    """Whether it is a warning or information of torch's, which tries again what did not work."""
    return _ATTEMPT.search(text) is not None
