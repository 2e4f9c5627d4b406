"""Which files the recorder tells of."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ddpdoctor.model import Where
from ddpdoctor.recorder.events.files import FileEvent, FileRead
from ddpdoctor.recorder.patches.files import _Watch


def test_what_is_written_is_told_however_much_is_read(tmp_path: Path) -> None:
    events: list[Any] = []
    session = SimpleNamespace(
        folder=str(tmp_path / "records"),
        in_worker=False,
        torch=None,
        event=events.append,
        here=lambda: Where("train.py", 7),
        sites=SimpleNamespace(is_foreign=lambda file: False),
        part=lambda name, make: SimpleNamespace(saving=0),
    )
    watch = _Watch(session)  # type: ignore[arg-type]
    frame = sys._getframe()
    for number in range(5000):
        watch._look("open", (str(tmp_path / f"{number}.jpg"), "r", 0), frame)
    watch._look("open", (str(tmp_path / "index.json"), "w", 0), frame)
    *reads, written = events
    assert len(reads) == 5
    assert all(isinstance(read, FileRead) for read in reads)
    assert isinstance(written, FileEvent)
    assert (written.action, written.path) == ("write", str(tmp_path / "index.json"))
    assert written.emptied
    watch._look("open", (str(tmp_path / "train.log"), "a", 0), frame)
    assert not events[-1].emptied
