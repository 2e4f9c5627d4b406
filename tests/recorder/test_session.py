"""What a record begins with."""

import sys
from types import SimpleNamespace

from ddpdoctor.recorder import session, writer
from ddpdoctor.recorder.events.files import Printed
from ddpdoctor.recorder.events.process import Raised
from ddpdoctor.recorder.events.training import Progress
from ddpdoctor.recorder.options import RecorderOptions
from ddpdoctor.trace.record import Record, lines_of


def test_the_script_is_written_down_as_an_absolute_path(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["train.py", "--lr", "1"])
    assert session._main_script() == str(tmp_path / "train.py")
    monkeypatch.setattr(sys, "argv", ["-m"])
    assert session._main_script() == "-m"


def test_a_record_that_is_full_still_says_how_it_ended_and_where(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "LARGEST_RECORD", 20_000)
    torch = SimpleNamespace(__file__="/torch/__init__.py", __version__="2.13")
    recorded = session.Session(RecorderOptions(record=str(tmp_path)), torch)
    recorded._begin_record({})
    for epoch in range(1000):
        recorded.event(Printed(float(epoch), recorded.here(), "an epoch is over"))
    at = recorded.here()
    recorded.event(Printed(1000.0, at, "there is no room for this one"))
    recorded.event(Progress(1000, 1000, 0, 1000.0), now=True)
    recorded.event(Raised("RuntimeError", "lost", 1001.0, at=at), now=True)
    recorded.writer.trim()
    (file,) = tmp_path.glob("*.jsonl")
    assert file.stat().st_size < 21_000
    record = Record(lines_of(file), file=file)
    (raised,), (told,) = record.events(Raised), record.events(Progress)
    assert (raised.at.function, told.steps) == (sys._getframe().f_code.co_name, 1000)
    assert record.malformed == []
