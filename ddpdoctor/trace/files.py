"""What a script wrote and read: checkpoints, other files, loggers. Plain data."""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddpdoctor.model import Where

if TYPE_CHECKING:
    from ddpdoctor.trace.recording import Recording


@dataclass(frozen=True)
class Save:
    """A ``torch.save``."""

    path: str
    """Absolute, links resolved; empty for a buffer in memory."""
    at: Where | None
    begin: float
    end: float | None = None
    """None where it did not return."""
    size: int | None = None
    entries: tuple[str, ...] = ()
    """The top-level keys of what was saved."""
    prefix: str | None = None
    """``module.`` or ``_orig_mod.`` where the parameters saved carry it."""
    evaluated: int | None = None
    """The number of the last evaluation pass before it, where there was one."""

    @property
    def span(self) -> tuple[float, float]:
        """From when to when it wrote; one moment where it did not return."""
        return self.begin, self.begin if self.end is None else self.end


@dataclass(frozen=True)
class Load:
    """A ``torch.load``."""

    path: str
    at: Where | None
    begin: float
    end: float | None = None
    entries: tuple[str, ...] = ()
    prefix: str | None = None
    map_location: str | None = None
    """As it was given; None where it was not."""
    devices: tuple[str, ...] = ()
    """Where the tensors came to lie, ``cuda:0`` also in a rehearsal."""
    error: str | None = None
    """``Type: message`` where it raised."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """The top-level entries that are plain numbers: ``epoch``, ``step``, ..."""
    states: tuple[str, ...] = ()
    """The kinds of state that it holds by what is in them: ``optimizer``, ``scheduler``, ``scaler``."""

    @property
    def span(self) -> tuple[float, float]:
        """From when to when it read; one moment where it did not return."""
        return self.begin, self.begin if self.end is None else self.end


@dataclass(frozen=True)
class StateLoad:
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


@dataclass(frozen=True)
class FileEvent:
    """A file or folder changed by the script itself, not through torch.save."""

    action: str
    """``write`` (opened so that it is emptied or created), ``mkdir``, ``remove``, ``rename``, ``extract``;
    ``lock`` where a process waits for its turn at this file, told once for each."""
    path: str
    time: float
    at: Where | None


@dataclass(frozen=True)
class LogWriter:
    """An experiment logger that was opened: tensorboard's SummaryWriter, wandb's or mlflow's run; a log file in use."""

    kind: str
    target: str
    """Its folder or project."""
    at: Where | None
    time: float


@dataclass(frozen=True)
class Printed:
    """A line that the script printed or logged; kept where it stands soon after an evaluation."""

    time: float
    at: Where | None
    text: str


_QUOTED = re.compile(r"'([^']+)'")

Exchange = tuple[int, Save, int, Load]
"""Who writes, what, who reads, what."""


def exchanged(recordings: Mapping[int, Recording]) -> Iterator[Exchange]:
    """Each read of a file that another rank writes; on another host it is another file, or may be."""
    for writer, one in recordings.items():
        for save in one.saves:
            for reader, other in recordings.items():
                if save.path and reader != writer and other.host == one.host:
                    yield from (
                        (writer, save, reader, load) for load in other.loads if load.path == save.path
                    )


def is_named(path: str, message: str) -> bool:
    """Whether the message of an OSError is about this path, which it gives as the script did."""
    names = [os.path.normpath(one) for one in _QUOTED.findall(message) if message.startswith("[Errno ")]
    return any(path == name or path.endswith(f"/{name}") for name in names)


def changed_by_others(recordings: Mapping[int, Recording], rank: int, message: str) -> bool:
    """Whether an OSError of this rank is about a path that another rank of its host writes, makes or removes."""
    own = recordings.get(rank)
    peers = [one for peer, one in recordings.items() if own and peer != rank and one.host == own.host]
    paths = [save.path for one in peers for save in one.saves]
    paths += [event.path for one in peers for event in one.files if event.action != "lock"]
    return any(is_named(path, message) for path in paths)
