"""Where a process says that it is."""

import gc
import threading
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ddpdoctor.hang.heartbeats import NOW, read_heartbeat
from ddpdoctor.recorder.patches.background import Heartbeat
from ddpdoctor.recorder.sites import Sites


def session_in(folder: Path) -> Any:
    writer = SimpleNamespace(folder=str(folder), name="10-a")
    sites: Any = Sites("/nowhere")
    sites.is_foreign = lambda file: not file.endswith("test_heartbeat.py")
    counts = {"steps": 1, "backwards": 1, "shared": {}, "waited": 0.0}
    return SimpleNamespace(writer=writer, sites=sites, thread=None, **counts)


def test_what_a_function_holds_is_let_go_of_when_it_returns(tmp_path: Path) -> None:
    heartbeat = Heartbeat(session_in(tmp_path))

    def iterates() -> weakref.ref[Any]:
        iterator = set[int]()
        background = threading.Thread(target=heartbeat.tick)
        background.start()
        background.join()
        return weakref.ref(iterator)

    gc.disable()
    try:
        assert iterates()() is None
    finally:
        gc.enable()


def test_the_thread_that_trains_is_told_while_it_is_there(tmp_path: Path) -> None:
    here, goes_on = threading.Event(), threading.Event()

    def trains_beside_the_main_thread() -> None:
        here.set()
        goes_on.wait()

    session = session_in(tmp_path)
    heartbeat, file = Heartbeat(session), tmp_path / f"10-a{NOW}"
    thread = threading.Thread(target=trains_beside_the_main_thread)
    thread.start()
    here.wait()
    functions = []
    for session.thread in (None, thread.ident):
        heartbeat.tick()
        beat = read_heartbeat(file)
        assert beat is not None
        assert beat.at is not None
        functions.append((beat.at.function, beat.main))
    goes_on.set()
    thread.join()
    heartbeat.tick()
    beat = read_heartbeat(file)
    assert beat is not None
    assert beat.main
    name = "test_the_thread_that_trains_is_told_while_it_is_there"
    assert functions == [(name, True), ("trains_beside_the_main_thread", False)]
