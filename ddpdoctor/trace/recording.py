"""What the recorder saw of one rank, as a check reads it. Plain data, no torch.

Times are seconds on CLOCK_MONOTONIC, which all processes of one host share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ddpdoctor.recorder.events.files import FileEvent, Load, Save, StateLoad
from ddpdoctor.recorder.events.process import Device, Exit, GroupEvent, Note, Raised, Start
from ddpdoctor.text import uncoloured
from ddpdoctor.trace.data import Loader, Pass, Split
from ddpdoctor.trace.exact import Exact
from ddpdoctor.trace.hooked import HookedGradient
from ddpdoctor.trace.record import E, Record
from ddpdoctor.trace.training import (
    Buffers,
    Collective,
    Conversion,
    Forward,
    Optimizer,
    Shadow,
    TrainingStep,
    Wrapper,
)


@dataclass(frozen=True)
class Recording:
    """One rank's process, from its start to its end."""

    pid: int = 0
    host: str = ""
    torch: str = ""
    script: str = ""
    """The main script, absolute; the module's name for ``-m``."""
    started: float = 0.0
    clock: float = 0.0
    """What makes one of its times, which are its host's, into seconds since the epoch."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """The launcher's variables when it started."""
    groups: tuple[GroupEvent, ...] = ()
    wrappers: tuple[Wrapper, ...] = ()
    conversions: tuple[Conversion, ...] = ()
    optimizers: tuple[Optimizer, ...] = ()
    steps: tuple[TrainingStep, ...] = ()
    """The training steps that were written down: all of a short run; of a long one the first, and then some."""
    step_count: int = 0
    """How many training steps there were."""
    trailing: TrainingStep | None = None
    """What came after the last update: forwards and backwards whose gradients no optimizer used."""
    loaders: tuple[Loader, ...] = ()
    passes: tuple[Pass, ...] = ()
    splits: tuple[Split, ...] = ()
    saves: tuple[Save, ...] = ()
    loads: tuple[Load, ...] = ()
    state_loads: tuple[StateLoad, ...] = ()
    buffers: tuple[Buffers, ...] = ()
    shadows: tuple[Shadow, ...] = ()
    collectives: tuple[Collective, ...] = ()
    """All that the script issued, inside training steps and outside; of a line that comes often not every one."""
    evaluation_forwards: tuple[Forward, ...] = ()
    """Forwards without autograd, inside training steps that were written down and outside; not every one."""
    progress: Mapping[str, Any] = field(default_factory=dict)
    """How far it came, all steps counted: ``steps``, ``backwards``, ``collectives`` and seconds in ``phases``."""
    files: tuple[FileEvent, ...] = ()
    devices: tuple[Device, ...] = ()
    raised: Raised | None = None
    exit: Exit | None = None
    last: float = 0.0
    """The time of its last event."""
    notes: tuple[Note, ...] = ()
    exact: Exact | None = None
    """The gradient of one process beside it, where that was asked for."""
    hooked: tuple[HookedGradient, ...] = ()
    """Gradients that the script's own communication hooks were given, in the first updates."""

    record: Record = field(default_factory=Record)
    """All its events."""

    def events(self, kind: type[E]) -> tuple[E, ...]:
        """The events of a kind, in their order."""
        return self.record.events(kind)

    @property
    def rank(self) -> int | None:
        """Its rank in the default group; before there is one, what the launcher gave it; None without both."""
        for event in self.groups:
            if event.action == "init":
                return event.rank
            if "rank" in event.arguments:
                return int(event.arguments["rank"])
        text = self.environ.get("RANK", "")
        return int(text) if text.isdigit() else None


def recording_of(record: Record) -> Recording:
    """What a record tells of its process."""
    start = next(iter(record.events(Start)), Start(0, 0.0))
    raised = record.events(Raised)[-1:]
    return Recording(
        pid=start.pid,
        host=start.host,
        torch=start.torch,
        script=start.script,
        started=start.time,
        clock=start.began / 1e9 - start.time,
        environ=start.environ,
        groups=record.events(GroupEvent),
        saves=record.events(Save),
        loads=record.events(Load),
        state_loads=record.events(StateLoad),
        files=record.events(FileEvent),
        devices=record.events(Device),
        raised=replace(raised[0], message=uncoloured(raised[0].message)) if raised else None,
        exit=_exit(record),
        last=record.last,
        notes=record.events(Note),
        record=record,
    )


def _exit(record: Record) -> Exit | None:
    """How the script ended; one that returned may be ended by something else after that."""
    ends = record.events(Exit)
    return next((end for end in ends if end.how != "returned"), ends[-1] if ends else None)
