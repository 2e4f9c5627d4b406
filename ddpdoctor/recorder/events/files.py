"""What a script wrote and read: checkpoints, other files, loggers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from ..where import Where
from .schema import Event


@dataclass(slots=True)
class Checkpoint(Event):
    """A file that torch writes or reads."""

    KEY: ClassVar[str] = "id"

    path: str
    """Absolute, links resolved; empty for a buffer in memory."""
    at: Where | None
    begin: float
    end: float | None = None
    """None where it did not return."""
    entries: tuple[str, ...] = field(default=(), kw_only=True)
    """The top-level keys of what it holds."""
    prefix: str | None = field(default=None, kw_only=True)
    """``module.`` or ``_orig_mod.`` where the parameters carry it."""
    numbers: Mapping[str, float] = field(default_factory=dict, kw_only=True)
    """The top-level entries that are plain numbers: ``epoch``, ``step``, ..."""
    states: tuple[str, ...] = field(default=(), kw_only=True)
    """The kinds of state that it holds by what is in them: ``optimizer``, ``scheduler``, ``scaler``."""
    id: int = field(default=0, kw_only=True)
    """Which one it is, in order."""

    @property
    def span(self) -> tuple[float, float]:
        """From when to when it was written or read; one moment where that did not return."""
        return self.begin, self.begin if self.end is None else self.end


@dataclass(slots=True)
class Save(Checkpoint):
    """A ``torch.save``."""

    size: int | None = None


@dataclass(slots=True)
class Load(Checkpoint):
    """A ``torch.load``."""

    map_location: str | None = field(default=None, kw_only=True)
    """As it was given; None where it was not."""
    devices: tuple[str, ...] = field(default=(), kw_only=True)
    """Where the tensors came to lie, ``cuda:0`` also in a rehearsal."""
    error: str | None = field(default=None, kw_only=True)
    """``Type: message`` where it raised."""


@dataclass(slots=True)
class StateLoad(Event):
    """A ``load_state_dict``."""

    kind: str
    """``module``, ``optimizer``, ``scheduler``, ``scaler`` or ``other``."""
    name: str
    """The class."""
    at: Where | None
    time: float
    strict: bool = True
    matched: int = 0
    """How many keys were loaded."""
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    wrapper: int | None = None
    """The wrapper that holds this module, or is it; None before the wrap or where there is none."""
    load: int | None = None
    """Which of the loads it took its values from, where that was seen."""
    error: str | None = None


@dataclass(slots=True)
class FileEvent(Event):
    """A file or folder changed by the script itself, not through torch.save."""

    action: str
    """``write`` (opened so that it is emptied or created), ``mkdir``, ``remove``, ``rename``, ``extract``;
    ``lock`` where a process waits for its turn at this file, told once for each."""
    path: str
    time: float
    at: Where | None
    background: bool = False
    """Whether another thread than the main one did it."""
    emptied: bool = False
    """Whether a write took away what was in the file."""


@dataclass(slots=True)
class FileRead(Event):
    """A file opened for reading on the script's behalf, not through torch.load; of each line the first few."""

    path: str
    time: float
    at: Where | None


@dataclass(slots=True)
class PathAsked(Event):
    """The script asked whether a path exists; of each line and path the first time."""

    path: str
    time: float
    at: Where | None
    there: bool = True


@dataclass(slots=True)
class LogWriter(Event):
    """An experiment logger that was opened: tensorboard's SummaryWriter, wandb's or mlflow's run; a log file in use."""

    kind: str
    target: str
    """Its folder or project."""
    at: Where | None
    time: float


@dataclass(slots=True)
class Printed(Event):
    """A line that the script printed or logged; kept where it stands soon after an evaluation."""

    time: float
    at: Where | None
    text: str
