"""Takes from a line what launchers, containers and terminals put around it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ddpdoctor.logs.line_kinds import Numbering
from ddpdoctor.text import uncoloured

_LABEL = re.compile(
    r"""
      \[[A-Za-z_]*?(?P<rank>\d{1,6})(?:\|\d+)?\]:\s?                         # torchrun: [rank0]:, [default0]:
    | (?:[A-Z][a-z]{2}\ [A-Z][a-z]{2}\ [\ \d]\d\ \d\d:\d\d:\d\d\ \d{4})?   # with --timestamp-output
      \[(?:prterun-[^\]@\s]{1,80}@)?1,(?:mpirank:)?(?P<mpi>\d{1,6})      # mpirun --tag-output, SageMaker's mpirun
      (?:,(?P<algo>[^\]\s]{1,80}))?\]<std(?:out|err)>:?\s?
    | \s*(?P<task>\d{1,5}):\s(?=\S|\s{2}|\t|$)                              # srun --label
    | \[rank:?\ (?P<lightning>\d{1,6})\]\s?                              # Lightning
    | \(\S*\ ?(?:rank=(?P<actor>\d+)[^)]*|pid=(?P<pid>\d+)(?:,\ ip=(?P<ip>[\w.:]+))?[^)]*)\)\s?   # Ray, vLLM
    | \d+(?:\.\d+)?s\t\d+\t                                              # notebooks: seconds and line number
    | \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)\s(?:std(?:out|err)\s[FP]\s)?   # containers
    | \[(?P<tag>\d{1,6})\]\s(?=\S+:\d+:\d+\ \[)                            # mpirun's kin, before NCCL's own
    | \S{1,80}\s\[std(?:out|err)\]\s                                     # collectors that name the stream
    | \[\d{4}-\d\d-\d\d[\ T]\d\d:\d\d:\d\d\]\s                             # ts and its kin
    | [A-Z][a-z]{2}\ [\ \d]\d\ \d\d:\d\d:\d\d\ \S{1,80}\ [^\s:\[]{1,80}\[\d+\]:\s   # journalctl, syslog
    | \d{4}-\d\d-\d\d[\ T]\d\d:\d\d:\d\d(?:[.,]\d+)?\s            # loggers, in front of each line
      (?=Traceback|\s|\[rank|[\w.]+(?:Error|Exception)\b)
    | \[pod/(?P<pod>[^\]\s/]+)[^\]\s]*\]\s                               # kubectl logs --prefix
    | [\w.-]+\s+\|\s(?=\S|\s)                                            # docker compose
    | (?:ERROR|WARNING|INFO|CRITICAL)\s+                                 # loggers, over a traceback of several lines
      (?:\d\d-\d\d\s\d\d:\d\d:\d\d\s+(?:\[?[\w./]+:\d+\]\s?)?|(?=\s*File\ "|Traceback|\s\s|[\w.]+Error\b))
    | (?:(?=[\w.-]*\d)(?P<host>[A-Za-z][\w.-]*):|[(\[](?=[\w.-]*\d)(?P<node>[A-Za-z][\w.-]*)[)\]])\s   # pdsh
      (?=Traceback|\s\s|\t|\[|[WE]\d{4}|[\w.]+(?:Error|Exception)\b)
    """,
    re.VERBOSE,
)
_MOST_LABELS = 4
_START = "Traceback (most recent call last)"
_LONGEST_PREFIX = 120
_IS_PREFIX = re.compile(
    r"(?!.*(?:Error|Exception|Exit|Interrupt|Warning): $)"
    r"(?:(?=.*\d)(?!.*(?:%\||it/s|[{\"]))\S.*[\s\]:>|)-]$|[A-Za-z][\w.@-]{0,60}: $)"
)
"""Of what stands before a traceback: not a progress bar, and not the key of an object in JSON; or one word.

And not an exception whose message is a traceback."""
_MOST_SHAPES = 16
_TIME = re.compile(r"\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d(?:[.,]\d+)?")
_NAMES_RANK = re.compile(r"(?i)\brank\W{0,2}(\d{1,6})\b|^\[(\d{1,6})\] $")
"""In words, or as Intel MPI and MPICH label the lines of each rank."""
_RANKS = ("rank", "mpi", "task", "lightning", "actor", "tag")
_TASKS = ("task", "mpi")
_HOSTS = {"host": None, "node": None, "pod": None, "algo": "mpi", "ip": "pid"}
"""And which group stands before it in the same label."""


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
        match = _LABEL.match(text)
        if match is None:
            break
        kind = match.lastgroup
        if kind in _HOSTS:
            host = host or match[kind]
            kind = _HOSTS[kind]
        if kind is not None:
            if kind in _RANKS:
                rank, numbering = int(match[kind]), _numbering(kind, match[0])
            process = process or f"{kind}{match[kind]}"  # the innermost is not on every line
        text = text[match.end() :]
    host_of_rank = "" if numbering is Numbering.LOCAL_RANK else host
    return Labelled(text, f"{host} {process}" if host else process, rank, host_of_rank, numbering)


def _numbering(kind: str, label: str) -> Numbering:
    if kind == "rank" and not label.startswith("[rank"):
        return Numbering.LOCAL_RANK
    return Numbering.TASK if kind in _TASKS else Numbering.RANK


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
        before, start, _ = text.partition(_START)
        if start and len(self._shapes) < _MOST_SHAPES and _is_prefix(before):
            shape = re.sub(r"\d+", r"\\d+", re.escape(before))
            self._shapes.setdefault(shape, re.compile(shape))
        matches = (shape.match(text) for shape in self._shapes.values()) if labelled.text == text else ()
        match = next(filter(None, matches), None)
        if match is None:
            return labelled
        rest, rank = strip(text[match.end() :]), _NAMES_RANK.search(match[0])
        label = rest.label or _TIME.sub("", match[0]).strip()
        number = next(filter(None, rank.groups())) if rank and rest.rank is None else rest.rank
        return Labelled(rest.text, label, None if number is None else int(number), rest.host)


def _is_prefix(before: str) -> bool:
    return len(before) <= _LONGEST_PREFIX and _IS_PREFIX.match(before) is not None
