"""A rank's process: its groups, its devices, how it ended; and which lines it reached, by which branches."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..where import Where
from .schema import Event


@dataclass(slots=True)
class Start(Event):
    """The first event of every record."""

    schema: int
    time: float
    """On CLOCK_MONOTONIC, as all times are."""
    began: int = 0
    """The same moment in nanoseconds since the epoch."""
    pid: int = 0
    parent: int = 0
    host: str = ""
    torch: str = ""
    script: str = ""
    """``sys.argv[0]``."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """The launcher's variables."""


@dataclass(slots=True)
class GroupEvent(Event):
    """A process group is made or destroyed."""

    KEY: ClassVar[str] = "id"

    action: str
    """``init``, ``new_group`` or ``destroy``; ``joining`` where init_process_group did not return, ``refused`` where it
    raised; ``making`` where new_group did not return."""
    time: float
    at: Where | None
    backend: str | None = None
    rank: int | None = None
    """The rank in this group; -1 where this process is no member of a new group."""
    size: int | None = None
    ranks: tuple[int, ...] | None = None
    """The members, as global ranks, of a new group."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """What the script gave: rank, world_size, init_method, backend, timeout (seconds), store (its type); or absent."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """The launcher's variables as they were at that moment: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, ..."""
    local: bool = False
    """Whether only the members of a new group have to call for it (``use_local_synchronization``)."""
    mesh: str | None = None
    """The dimension of a device mesh whose group this is, by its name; None of one that the script made."""
    id: int = 0
    """Of the call, in order."""
    returned: bool = False
    """Whether destroy_process_group came back."""


@dataclass(slots=True)
class Threads(Event):
    """What this process may compute with, when its process group was there."""

    threads: int
    """``torch.get_num_threads()``."""
    cpus: int | None = None
    """CPUs that it may run on."""


@dataclass(slots=True)
class Device(Event):
    """A device that this rank used; simulated in a rehearsal."""

    index: int
    how: str
    """``set`` (torch.cuda.set_device) or ``use`` (the first tensor or module was placed there)."""
    at: Where | None = None
    valid: bool = True
    """Whether the rank's process sees a GPU of this index."""
    gpu: str | None = None
    """Which GPU of the host it is, where CUDA_VISIBLE_DEVICES renumbers them; None where it is none."""
    visible: int = 0
    """How many GPUs the process sees."""
    variable: str | None = None
    """CUDA_VISIBLE_DEVICES when it was asked for; the launcher's value is that of Start."""


@dataclass(slots=True)
class Raised(Event):
    """An exception that ended the script."""

    type: str
    message: str
    time: float
    frames: tuple[Where, ...] = ()
    """Outermost first, absolute paths."""
    at: Where | None = None
    """The innermost frame in the user's own code."""
    causes: tuple[str, ...] = ()
    """The chain that led to it, innermost first, each as ``Type: message``."""
    handling: tuple[Where, ...] = ()
    """The frames of the last of them, where it was being handled when this one was raised."""
    of_rehearsal: bool = False
    """Whether it, or what led to it, is a fault of the rehearsal, which GPUs would not raise."""


@dataclass(slots=True)
class Exit(Event):
    """How the script ended, as far as its process saw it."""

    how: str
    """``returned``, ``exit`` (sys.exit), ``os._exit``, ``exception``, or ``shortened``: we ended it, it had shown
    enough."""
    time: float
    status: int | None = None
    at: Where | None = None


@dataclass(slots=True)
class Note(Event):
    """Something the recorder could not do, or a rehearsal cannot show."""

    topic: str
    text: str


RETURNED = 0
"""Stands for a line where a function returned."""
Plain = bool | int | float | str | None


@dataclass(slots=True)
class Code(Event):
    """A function of the script, or a module's own code, that was entered."""

    number: int
    file: str
    function: str
    line: int
    """Its first."""
    branches: tuple[tuple[int, ...], ...] = ()
    """Lines with a condition, each with the lines that may come next; ``RETURNED`` where none does."""


@dataclass(slots=True)
class Called(Event):
    """The function was entered from this line of the script, which may call it by way of a library."""

    code: int
    """The number of its :class:`Code`."""
    at: Where | None


@dataclass(slots=True)
class Reached(Event):
    """The lines that were reached from one training step to the next, as a difference to the event before it."""

    KEY: ClassVar[str] = "number"
    number: int
    step: int
    """Training steps that had ended when it began."""
    more: tuple[tuple[int, ...], ...] = ()
    """The number of a :class:`Code`, and first and last line of each range that was not reached before."""
    fewer: tuple[tuple[int, ...], ...] = ()
    """Likewise of ranges that were reached before and are not now."""
    order: tuple[tuple[int, int], ...] | None = None
    """Code and line of the conditions, in the order in which each was first reached; None where it is as before."""
    partial: bool = False
    """Whether it may lack lines: there was a pause, or it is still the first part."""


@dataclass(slots=True)
class Decided(Event):
    """What a condition of the script was about to decide by, when a step first came to it."""

    code: int
    line: int
    number: int
    """Of the :class:`Reached` it belongs to."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Each of them :data:`Plain`, by name; those that were not told before, or others then."""
