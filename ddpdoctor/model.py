"""The vocabulary: what a check says, and the report that it ends in. Knows nothing else of ddpdoctor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from ddpdoctor.recorder.where import Where as Where  # noqa: PLC0414 - it belongs to the vocabulary
from ddpdoctor.recorder.where import below_libraries as below_libraries  # noqa: PLC0414

if TYPE_CHECKING:
    from ddpdoctor.figures import Section  # only pages need them


class Level(str, Enum):
    """How bad a finding is. ``INFO`` never changes the exit status."""

    FAIL = "fail"
    WARN = "warn"
    INFO = "info"


class Outcome(str, Enum):
    """What became of a check. ``ERROR``: the check itself broke, which is our bug and never the user's."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"
    ERROR = "error"


class Family(str, Enum):
    """The kind of problem; also the folder under ``checks/``, and the order of the report."""

    ENVIRONMENT = "environment"
    LAUNCH = "launch"
    DATA = "data"
    MODEL = "model"
    GRADIENTS = "gradients"
    COLLECTIVES = "collectives"
    CHECKPOINT = "checkpoint"
    EVALUATION = "evaluation"
    PERFORMANCE = "performance"
    NETWORK = "network"
    GPU = "gpu"


class Source(str, Enum):
    """Where a check can look, in the order in which ``check`` looks there."""

    HOST = "host"
    GROUP = "group"
    RUN = "run"
    LOG = "log"
    CODE = "code"

    @property
    def method(self) -> str:
        """The name of the method by which a check looks here."""
        return f"examine_{self.value}"


class Confidence(str, Enum):
    """How sure a finding is of its cause."""

    CERTAIN = "certain"
    LIKELY = "likely"


class Role(str, Enum):
    """What a line of job output is to the failure that it tells of; in order of what it explains."""

    SYSTEM = "system"
    """The kernel, the scheduler or the driver says what it did; it says so late, and it came first."""
    CAUSE = "cause"
    """It says itself what is wrong, in words that name the problem."""
    EXCEPTION = "exception"
    """An exception of the script's own."""
    DEATH = "death"
    """A process ended without an error message of its own."""
    LIBRARY = "library"
    """NCCL, gloo or CUDA report an error, which may be a consequence; nothing says of what."""
    MESSENGER = "messenger"
    """A survivor tells that a peer is gone, or that it waited in vain."""
    ATTEMPT = "attempt"
    """A warning about something that may have worked at the next attempt, or a circumstance that may do no harm."""
    UNKNOWN = "unknown"
    """Something failed, and the output does not say what."""


@dataclass(frozen=True)
class Sighting:
    """Where in a job's output a finding was seen, and what the line is to the failure."""

    file: str
    line: int
    position: int
    """Among all lines of all files."""
    role: Role = Role.CAUSE


class Kind(str, Enum):
    """What sort of thing a finding is about."""

    PATH = "path"
    MODEL = "model"
    """A wrapped model, or a module in it."""
    PARAMETER = "parameter"
    OPTIMIZER = "optimizer"
    SCHEDULER = "scheduler"
    LOADER = "loader"
    METRIC = "metric"
    GROUP = "group"
    VARIABLE = "variable"
    """Of the environment."""
    PORT = "port"
    HOST = "host"
    INTERFACE = "interface"
    GPU = "gpu"
    PACKAGE = "package"
    BACKEND = "backend"
    LINE = "line"
    """A line of the script, for what has no other name."""

    def of(self, *names: object) -> tuple[Subject, ...]:
        """Things of this kind, for :attr:`Finding.about`."""
        return tuple(Subject(self, str(name)) for name in names)


@dataclass(frozen=True)
class Subject:
    """One thing that a finding is about; its name is the same in every check that speaks of the thing."""

    kind: Kind
    name: str


@dataclass(frozen=True)
class Evidence:
    """One observed state and the ranks that share it; no ranks means that it belongs to none in particular."""

    text: str
    ranks: tuple[int, ...] = ()
    where: Where | None = None
    """The line of the user's that it is about, where that is one."""


@dataclass(frozen=True)
class Mark:
    """A line of an excerpt that a finding is about."""

    line: int
    ranks: tuple[int, ...] = ()
    """That do there what the finding tells of; empty where that is not told."""
    main: bool = False
    """Whether it is the line that the finding names."""
    columns: tuple[int, int] | None = None
    """First and end, in characters, of the expression in the line as shown; None where the whole line is meant."""


@dataclass(frozen=True)
class Excerpt:
    """A few lines of a file of the user's, for a person to look at."""

    file: str
    first: int
    """The number of the first line."""
    lines: tuple[str, ...]
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class Change:
    """Lines of a file that a patch replaces."""

    file: str
    """Relative to the working directory where it lies below it."""
    line: int
    """The first, as the file is now."""
    removed: int
    """How many lines go; 0 where lines are inserted before it."""
    text: str
    """What stands there afterwards: whole lines, each with its end."""


@dataclass(frozen=True)
class Patch:
    """A change of the user's files that may cure a finding."""

    title: str
    """What it does, in a clause."""
    diff: str
    """As ``git apply`` reads it in the working directory."""
    verified: bool
    """Whether the same check of a copy with the change found the problem gone, and nothing new."""
    outcome: str
    """What came out of that check, or why there was none, in a clause."""
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True)
class Finding:
    """One problem found. The headline stands alone: lower case, subject first, no advice, no full stop."""

    code: str
    level: Level
    headline: str
    why: str
    fix: str
    ranks: tuple[int, ...] = ()
    where: Where | None = None
    evidence: tuple[Evidence, ...] = ()
    confidence: Confidence = Confidence.CERTAIN
    sighting: Sighting | None = None
    """Where in the job's output, for what was found there."""
    explained_by: tuple[str, ...] = ()
    """Codes of checks of whose findings this one may be a symptom; see :func:`ddpdoctor.judge.explains`."""
    about: tuple[Subject, ...] = ()
    """The things that it is about. With the code they tell whether two sources found the same, and which finding
    explains which; without them the finding is about the job as a whole."""
    foreseen: bool = False
    """Whether the run ended before it came to pass; then it explains nothing that did."""
    excerpts: tuple[Excerpt, ...] = ()
    """The lines that it is about, as they stand in their files; :mod:`ddpdoctor.excerpts` reads them for a report."""
    mechanical: bool = False
    """Whether the fix is the lines of a patch, which ``ddpdoctor fix`` verifies."""
    patch: Patch | None = None
    """What may cure it, where that was asked for and there is such a thing."""
    unpatched: str | None = None
    """Why there is no patch where one was asked for, in a clause."""

    @property
    def more(self) -> str:
        """The command that prints the page of this finding's check."""
        return f"ddpdoctor explain {self.code}"


@dataclass(frozen=True)
class Passed:
    """A check looked and found nothing wrong; ``text`` says what it saw."""

    text: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class Skipped:
    """A check could not look; ``reason`` says why, in a clause that follows the check's title and a colon."""

    reason: str
    cut_short: bool = False
    """Whether that is since the run was cut short, so that its full length may decide."""


Findings: TypeAlias = Iterator[Finding | Passed | Skipped]
"""Every instance of a problem, and what is so where there is none."""
Judgement: TypeAlias = Passed | Skipped | Finding | Sequence[Finding] | Findings
"""What a check's ``examine_*`` returns: every instance of the problem that it sees. A list of findings is never
empty: no problem is ``Passed``."""


@dataclass(frozen=True)
class CheckResult:
    """One check's line in the report."""

    code: str
    name: str
    family: Family
    outcome: Outcome
    text: str
    """What the report's line says: what was seen, or the title and the reason, or the first
    headline and how many findings there are more."""
    reason: str | None = None
    """Why the check was skipped or broke; None otherwise."""
    seconds: float = 0.0
    evidence: tuple[Evidence, ...] = ()
    """What was measured where nothing is wrong (a finding carries its own), and the excuses that were applied."""


@dataclass(frozen=True)
class Report:
    """Everything that one command found out; all formats are functions of it."""

    version: str
    command: tuple[str, ...]
    exit_status: int
    seconds: float
    checks: tuple[CheckResult, ...] = ()
    findings: tuple[Finding, ...] = ()
    """In order of blame: the root cause first."""
    run: dict[str, Any] = field(default_factory=dict)
    """What was run: nproc, backend, torch, folder (None where it was removed), and what else a source adds."""
    notes: tuple[str, ...] = ()
    """Sentences about this examination itself, for instance which log output a backend does not have."""
    since: float = 0.0
    """When what was examined began, in seconds since the epoch: files that changed later are not what ran."""
    sections: tuple[Section, ...] = ()
    """Pictures of what was examined; made only for a page, and shown by no other format."""
