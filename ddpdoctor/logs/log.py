"""A job's output, as ``examine_log`` gets it: what its lines say, with file and line number. Plain data, no torch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ddpdoctor.blame.frames import Frame, innermost_of_script
from ddpdoctor.check import Check, NotMeasured
from ddpdoctor.failures import Message
from ddpdoctor.judge import of_message
from ddpdoctor.logs.line_prefixes import BY_THE_SYSTEM, HELP, is_of_an_attempt, says_done
from ddpdoctor.logs.nccl_output import NcclFacts
from ddpdoctor.model import Evidence, Judgement, Role, Sighting, Skipped, Where
from ddpdoctor.recorder.launchers import Numbering
from ddpdoctor.text import shorten

_LONGEST_QUOTE = 300
_MOST_QUOTES = 6
GOES_ON = 5
"""Lines of training after a line that show it to have been no end."""


NOT_IN_OUTPUT = Skipped("the output contains nothing about it")
"""The judgement where no line is about the problem, which is no bill of health."""


@dataclass(frozen=True)
class Line:
    """One line, without the launcher's prefixes, timestamps of containers, and colours."""

    text: str
    number: int = 1
    file: str = "-"
    rank: int | None = None
    """The rank that its prefix names, or the file it stands in."""
    position: int = 0
    """Its place among all lines of all files, in the order in which they were written as far as that is known."""
    numbering: Numbering = Numbering.RANK
    """What the number in its label is, which is taken for the rank until the end of the output."""

    def sighting(self, role: Role = Role.CAUSE) -> Sighting:
        """Where a finding that rests on this line was seen."""
        return Sighting(self.file, self.number, self.position, role)

    @property
    def evidence(self) -> Evidence:
        """The line as a report quotes it."""
        text = shorten(self.text.strip(), _LONGEST_QUOTE)
        return Evidence(f"{self.file}:{self.number}: {text}", () if self.rank is None else (self.rank,))


@dataclass(frozen=True)
class Raised:
    """An exception that a process printed."""

    kind: str
    """As printed: ``ValueError``, ``torch.distributed.DistBackendError``."""
    message: str
    """All its lines."""
    line: Line
    """The line with ``kind: message``."""
    frames: tuple[Frame, ...] = ()
    """Outermost first; empty where no traceback stands above it."""
    rank: int | None = None
    cause: Raised | None = None
    """The exception that was printed above it as its cause, or while it was handled."""
    explicit: bool = False
    """Whether ``cause`` was given by ``raise ... from``."""
    survived: bool = False
    """Whether its process went on: somebody caught it and printed it."""

    @property
    def text(self) -> str:
        """``Type: message``, with the type as Python's source names it."""
        return f"{self.kind}: {self.message}" if self.message else self.kind

    @property
    def chain(self) -> tuple[Raised, ...]:
        """This exception, then what caused it, and so on."""
        return (self, *(self.cause.chain if self.cause else ()))

    @property
    def in_thread(self) -> bool:
        """Whether it ended a thread beside the main one, and not the process."""
        return bool(self.frames) and self.frames[0].function == "_bootstrap_inner"

    @property
    def root(self) -> Raised:
        """The exception to show for the chain: what was handled on purpose stands behind what came of it. That a
        command failed tells less than what was raised of it, such as the name of an extension to build."""
        tells = self.cause and self.explicit and not self.cause.kind.endswith("CalledProcessError")
        return self.cause.root if self.cause and tells else self

    @property
    def where(self) -> Where | None:
        """The innermost line that is the script's own: not torch's, nor another package's."""
        return innermost_of_script(self.frames)


@dataclass(frozen=True)
class Ended:
    """How a process ended, as its launcher, the shell or the scheduler tells."""

    code: int
    """Its exit status; negative for a signal."""
    line: Line
    rank: int | None = None
    local_rank: int | None = None
    pid: int | None = None
    host: str = ""

    @property
    def who(self) -> str:
        """``rank 2``, or ``a process`` where its rank is not known."""
        return "a process" if self.rank is None else f"rank {self.rank}"


@dataclass(frozen=True)
class Wait:
    """A collective that one rank waited in until its timeout."""

    rank: int | None
    operation: str
    """As torch names it: ``ALLREDUCE``, ``BROADCAST``."""
    line: Line
    sequence: int | None = None
    """Its number among the collectives of its group."""
    seconds: float | None = None
    """How long it waited."""
    elements: int | None = None
    enqueued: int | None = None
    """The last collective that this rank had started; -1 for none."""
    collective: bool = True
    """Whether it was one, and not a call that came back to nobody."""
    group: str = ""
    """The name of its group: 0 for that of all ranks; empty where the output does not tell."""

    @property
    def may_be_of_all(self) -> bool:
        """Whether its group is that of all ranks, or is not known."""
        return self.group in ("", "0")

    @property
    def what(self) -> str:
        """``ALLREDUCE number 12``, or what is known of it."""
        number = f" number {self.sequence}" if self.sequence is not None and self.operation else ""
        return f"{self.operation or 'a collective'}{number}"


@dataclass(frozen=True)
class Progress:
    """The last progress bar of one rank."""

    line: Line
    done: int
    total: int
    """0 where it is not known."""
    seconds: float | None = None
    """How long it had been running."""


@dataclass(frozen=True)
class Reason:
    """What a line, an exception, or both say of a problem."""

    match: re.Match[str]
    sources: tuple[Line | Raised, ...]

    @property
    def of_an_attempt(self) -> bool:
        """Whether no more than a warning or information says it."""
        return all(isinstance(source, Line) and is_of_an_attempt(source.text) for source in self.sources)

    def confirmed_by(self, end: Reason | None) -> Reason:
        """This and the line or exception by which torch gave up, where there is one: no attempt any more."""
        return self if end is None else replace(self, sources=(*self.sources, *end.sources))


@dataclass(frozen=True)
class Log:
    """Everything that the readers found in a job's output."""

    lines: tuple[Line, ...] = ()
    """The lines that have a word that some check asks for (``Check.log_words``), in order."""
    raised: tuple[Raised, ...] = ()
    faults: tuple[Raised, ...] = ()
    """Faults in native code whose Python stack was printed, each as if it were an exception."""
    ended: tuple[Ended, ...] = ()
    stopped: frozenset[int] = frozenset()
    """The processes that a launcher stopped, mostly because another had failed."""
    waits: tuple[Wait, ...] = ()
    reached: Mapping[int, int] = field(default_factory=dict)
    """By rank, the last collective that it had started when another's timeout made it tell."""
    progress: tuple[Progress, ...] = ()
    nccl: Mapping[str, NcclFacts] = field(default_factory=dict)
    """What NCCL said, by the process that said it: ``host:pid``."""
    world_size: int | None = None
    read: int = 0
    """How many lines were read."""
    training: tuple[Line, ...] = ()
    """The last lines that show training to go on: a loss, a step, a progress bar."""
    hung: Line | None = None
    """The line by which a person, a scheduler or a supervisor says that nothing more came."""
    succeeded: Line | None = None
    """The line by which a launcher says that all its ranks ended well."""
    last: Line | None = None
    cut_off: Line | None = None
    """The last line, where it is in the middle of a traceback."""
    host_of: Mapping[int, str] = field(default_factory=dict)
    """By rank, the host, container or pod that a launcher's summary or a prefix names for it."""

    def find(self, *patterns: str) -> tuple[Line, ...]:
        """The lines in which any of these regular expressions is found, in order."""
        compiled = [re.compile(pattern) for pattern in patterns]
        return tuple(line for line in self.lines if any(p.search(line.text) for p in compiled))

    def first(self, *patterns: str) -> Line | None:
        """The first such line."""
        return next(iter(self.find(*patterns)), None)

    def search(self, *patterns: str) -> Reason | None:
        """Where the output says one of these, as the reason of an end: in an exception, or in a line. An exception that
        was caught and a line after which training went on are passed over."""
        raised, said = self._in_exception(patterns), self._in_line(patterns)
        if raised is None:
            return said
        return replace(raised, sources=tuple(dict.fromkeys(raised.confirmed_by(said).sources)))

    def _in_exception(self, patterns: Sequence[str]) -> Reason | None:
        compiled = [re.compile(pattern) for pattern in patterns]
        for raised in self.fatal:
            for link in reversed(raised.chain):  # it says the same again where it is handled
                if match := _first_match(compiled, link.text):
                    return Reason(match, (link, *self._alike(link, compiled)))
        return None

    def _alike(self, first: Raised, patterns: Sequence[re.Pattern[str]]) -> Iterator[Raised]:
        """What other ranks raised at the same place of the script, and says the same: one of each rank."""
        ranks = {first.rank}
        for raised in self.fatal:
            for link in raised.chain:
                same = first.where is not None and (link.kind, link.where) == (first.kind, first.where)
                passed_on = link.line.text[:1].isspace()  # in torchrun's summary
                if same and not passed_on and link.rank not in ranks and _first_match(patterns, link.text):
                    ranks.add(link.rank)
                    yield link

    def reason(self, *patterns: str) -> Reason:
        """:meth:`search` for a check that looks for nothing else; NotMeasured where the output says none of these."""
        if (mention := self.search(*patterns)) is None:
            raise NotMeasured(NOT_IN_OUTPUT.reason)
        return mention

    def message(self, messages: Sequence[Message]) -> tuple[Message, Reason] | None:
        """:meth:`search` for these messages, with the row of the one that was found."""
        reason = self.search(*(message.pattern for message in messages))
        if reason is None:
            return None
        return next(row for row in messages if row.pattern == reason.match.re.pattern), reason

    def by_messages(self, check: Check) -> Judgement:
        """What a check says that has only messages to look for."""
        if (found := self.message(check.messages)) is None:
            return NOT_IN_OUTPUT
        message, reason = found
        return of_message(check, message, reason.match, log_fields(reason))

    def each(self, subject: str, *patterns: str) -> dict[str, Reason]:
        """:meth:`search`, for each thing that the lines speak of, which is the first group of the pattern ``subject``.
        What no such line speaks of goes by an empty name, and is told only where nothing else is."""
        first = self.search(*patterns)
        by_subject: dict[str, Reason] = {}
        for match in self._in_lines(patterns):
            if about := re.search(subject, match.match.string):
                by_subject.setdefault(about[1], match)
        return by_subject or ({"": first} if first else {})

    def _in_line(self, patterns: Sequence[str]) -> Reason | None:
        """The first line that is more than a warning of an attempt, or else the first."""
        return min(self._in_lines(patterns), key=lambda reason: reason.of_an_attempt, default=None)

    def _in_lines(self, patterns: Sequence[str]) -> Iterator[Reason]:
        caught = {link.line.position for raised in self.raised if raised.survived for link in raised.chain}
        compiled = [re.compile(pattern) for pattern in patterns]
        for line in self.lines:
            if line.position in caught:
                continue
            match = _first_match(compiled, line.text)
            if match and not self._got_over(line) and not HELP.match(line.text):
                yield Reason(match, (line,))

    def _got_over(self, line: Line) -> bool:
        """Whether the training went on after this line, or says at its end that it is done. It is not believed of what
        the system said after the last sign of training: a job's epilogue is done, too."""
        if not self.ended_well or self.went_on_after(line):
            return self.went_on_after(line)
        of_the_end = line.position > max(step.position for step in self.training)
        return not (of_the_end and BY_THE_SYSTEM.search(line.text))

    def went_on_after(self, line: Line) -> bool:
        """Whether training went on after this line, or came to a good end, and so the line was no end."""
        if self.succeeded and self.succeeded.file == line.file and self.succeeded.position > line.position:
            return True
        later = (step.position > line.position and step.file == line.file for step in self.training)
        return sum(later) >= GOES_ON

    def survives(self, line: Line) -> bool:
        """Whether the process that wrote this line went on: by its training, or by saying itself that it is done. Where
        no label tells the processes apart, one that trained after this line has to say so."""
        if self.went_on_after(line):
            return True
        if self.last is None or line.rank != self.last.rank or not replace(self, raised=()).ended_well:
            return False
        return line.rank is not None or any(step.position > line.position for step in self.training)

    @property
    def ended_well(self) -> bool:
        """Whether it is the output of a training that says itself that it is done, and nothing contradicts."""
        done = self.last is not None and says_done(self.last.text)
        return done and bool(self.training) and not self.failed

    def nccl_values(self, name: str) -> str:
        """The values of a variable that NCCL read in this job; empty where it did not print the variable."""
        values = {value for facts in self.nccl.values() for key, value in facts.variables if key == name}
        return ", ".join(sorted(values))

    @property
    def hosts(self) -> frozenset[str]:
        """The hosts that NCCL's lines and the ends of processes name."""
        names = (process.partition(":")[0] for process in self.nccl)
        return frozenset(filter(None, (*names, *(end.host for end in self.ended))))

    @property
    def fatal(self) -> Iterator[Raised]:
        """The exceptions that ended a process."""
        return (raised for raised in self.raised if not raised.survived)

    @property
    def failed(self) -> bool:
        """Whether anything here says that the job did not end well."""
        raised = any(not item.in_thread for item in self.fatal)
        return bool(self.waits) or any(item.code for item in self.ended) or raised


def _first_match(patterns: Iterable[re.Pattern[str]], text: str) -> re.Match[str] | None:
    for pattern in patterns:  # no generator: it runs for every line and every check
        if match := pattern.search(text):
            return match
    return None


def log_fields(
    *origins: Line | Raised | Ended | Reason, role: Role = Role.CAUSE, ranks: Iterable[int] | None = None
) -> dict[str, Any]:
    """The fields of a finding that rests on these lines, exceptions and ends of processes. ``self.fail(headline,
    why=..., fix=..., **log_fields(reason))`` fills in ranks, where, evidence and sighting."""
    parts = [part for it in origins for part in (it.sources if isinstance(it, Reason) else (it,))]
    by_position = {it.position: it for it in sorted(map(_line_of, parts), key=lambda it: it.rank is not None)}
    lines = [by_position[position] for position in sorted(by_position)]
    if role is Role.CAUSE and all(isinstance(part, Line) and is_of_an_attempt(part.text) for part in parts):
        role = Role.ATTEMPT
    sighting = lines[0].sighting(role)
    if role is Role.EXCEPTION and isinstance(parts[0], Raised):
        # What names a problem may stand in the last line of the exception's message.
        sighting = replace(sighting, position=sighting.position + parts[0].message.count("\n"))
    named = {part.rank for part in parts if part.rank is not None} if ranks is None else set(ranks)
    return {
        "ranks": tuple(sorted(named)),
        "where": next((part.where for part in parts if isinstance(part, Raised) and part.where), None),
        "evidence": tuple(line.evidence for line in lines[:_MOST_QUOTES]),
        "sighting": sighting,
    }


def _line_of(part: Line | Raised | Ended) -> Line:
    """The line, of the rank that it is about where its prefix names none."""
    if isinstance(part, Line):
        return part
    return part.line if part.line.rank is not None else replace(part.line, rank=part.rank)
