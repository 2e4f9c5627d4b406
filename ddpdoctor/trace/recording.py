"""What the recorder saw of one rank, as a check reads it. Plain data, no torch.

Times are seconds on CLOCK_MONOTONIC, which all processes of one host share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ddpdoctor.recorder.events.data import Loader
from ddpdoctor.recorder.events.files import FileEvent, Load, Save, StateLoad
from ddpdoctor.recorder.events.process import Device, Exit, GroupEvent, Note, Raised, Start
from ddpdoctor.recorder.events.training import Collective, Exact, Forward, Optimizer, Wrapper
from ddpdoctor.text import uncoloured
from ddpdoctor.trace.data import Pass, Split, passes_of, splits_of
from ddpdoctor.trace.record import E, Record
from ddpdoctor.trace.training import TrainingStep, steps_of


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
    collectives: tuple[Collective, ...] = ()
    """All that the script issued, inside training steps and outside; of a line that comes often not every one."""
    files: tuple[FileEvent, ...] = ()
    devices: tuple[Device, ...] = ()
    raised: Raised | None = None
    exit: Exit | None = None
    last: float = 0.0
    """The time of its last event."""
    record: Record = field(default_factory=Record)
    """All its events."""

    def events(self, kind: type[E]) -> tuple[E, ...]:
        """The events of a kind, in their order."""
        return self.record.events(kind)

    @property
    def notes(self) -> tuple[Note, ...]:
        """What the recorder could not do, and what of its record could not be read."""
        unread = self.record.malformed
        lines = (Note("record", f"{len(unread)} of its lines cannot be read: {unread[0]}"),) if unread else ()
        return (*self.events(Note), *lines)

    @property
    def evaluation_forwards(self) -> tuple[Forward, ...]:
        """Forwards without autograd, inside training steps that were written down and outside; not every one."""
        return tuple(forward for forward in self.events(Forward) if not forward.grad)

    @property
    def exact(self) -> Exact | None:
        """The gradient of one process beside it, where that was asked for."""
        return next(reversed(self.events(Exact)), None)

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


def recording_of(record: Record, children: Sequence[Record] = ()) -> Recording:
    """What a record tells of its process, and those of its workers."""
    start = next(iter(record.events(Start)), Start(0, 0.0))
    raised = record.events(Raised)[-1:]
    steps, trailing, count = steps_of(record)
    return Recording(
        pid=start.pid,
        host=start.host,
        torch=start.torch,
        script=start.script,
        started=start.time,
        clock=start.began / 1e9 - start.time,
        environ=start.environ,
        groups=record.events(GroupEvent),
        wrappers=record.events(Wrapper),
        optimizers=record.events(Optimizer),
        steps=tuple(steps),
        step_count=count,
        trailing=trailing,
        collectives=record.events(Collective),
        loaders=record.events(Loader),
        passes=tuple(passes_of(record, children)),
        splits=tuple(splits_of(record)),
        saves=record.events(Save),
        loads=record.events(Load),
        state_loads=record.events(StateLoad),
        files=record.events(FileEvent),
        devices=record.events(Device),
        raised=replace(raised[0], message=uncoloured(raised[0].message)) if raised else None,
        exit=_exit(record),
        last=record.last,
        record=record,
    )


def _exit(record: Record) -> Exit | None:
    """How the script ended; one that returned may be ended by something else after that."""
    ends = record.events(Exit)
    return next((end for end in ends if end.how != "returned"), ends[-1] if ends else None)
