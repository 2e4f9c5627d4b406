"""Which files the recorder tells of."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ddpdoctor.model import Where
from ddpdoctor.recorder.events.files import FileEvent, FileRead
from ddpdoctor.recorder.patches.files import _Watch


def _watch(tmp_path: Path, events: list[Any], *, in_worker: bool = False) -> _Watch:
    session = SimpleNamespace(
        folder=str(tmp_path / "records"),
        in_worker=in_worker,
        torch=None,
        event=lambda event, now=False: events.append((event, now) if in_worker else event),
        here=lambda: Where("train.py", 7),
        sites=SimpleNamespace(is_foreign=lambda file: False),
        shared={"Checkpoints": SimpleNamespace(saving=0)},
    )
    return _Watch(session)  # type: ignore[arg-type]


def test_what_is_written_is_told_however_much_is_read(tmp_path: Path) -> None:
    events: list[Any] = []
    watch = _watch(tmp_path, events)
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


@pytest.mark.parametrize(("mode", "told"), [("w", 1), ("a", 0)])
def test_a_log_is_told_where_its_handler_empties_it(tmp_path: Path, mode: str, told: int) -> None:
    events: list[Any] = []
    inner = {"sys": sys, "__name__": "logging"}
    # FileHandler's constructor is watched, too.
    of_logging = eval(
        "eval('sys._getframe()', inner)", {"inner": inner, "__name__": "ddpdoctor.recorder.patch"}
    )
    _watch(tmp_path, events)._look("open", (str(tmp_path / "train.log"), mode, 0), of_logging)
    assert len(events) == told


def test_a_picture_is_the_scripts_though_a_decorator_of_torch_calls_the_package(tmp_path: Path) -> None:
    events: list[Any] = []
    watch = _watch(tmp_path, events)
    watch.session.sites.is_foreign = lambda file: "torch" in file
    picture = (str(tmp_path / "1.png"), "w", 0)
    of_package = {"sys": sys, "__name__": "torchvision.utils"}
    save_image = eval("lambda look, picture: look('open', picture, sys._getframe())", of_package)
    torch.no_grad()(save_image)(watch._look, picture)
    assert [event.path for event in events] == [picture[0]]


def test_a_worker_tells_at_once_what_it_writes(tmp_path: Path) -> None:
    events: list[Any] = []
    watch = _watch(tmp_path, events, in_worker=True)
    watch._look("open", (str(tmp_path / "cache.npy"), "wb", 0), sys._getframe())
    ((event, now),) = events
    assert isinstance(event, FileEvent)
    assert now
