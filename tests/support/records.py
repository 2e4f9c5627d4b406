"""Records as the recorder writes them."""

from pathlib import Path

from ddpdoctor.recorder.events.process import Start
from ddpdoctor.recorder.events.schema import SCHEMA, Event, encode


def start(pid: int, time: float = 0.0, *, parent: int = 1, **environ: str) -> Start:
    """How the record of a process begins."""
    return Start(SCHEMA, time, pid=pid, parent=parent, script="train.py", environ=environ)


def write(file: Path, *events: Event) -> None:
    """Add events to a record, each written when it happened."""
    with file.open("a") as record:
        record.writelines(f"{encode(event, getattr(event, 'time', 0.0))}\n" for event in events)
