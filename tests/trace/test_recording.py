"""What a recording tells of its process."""

from ddpdoctor.recorder.events.process import Start
from ddpdoctor.trace.record import Record
from ddpdoctor.trace.recording import recording_of


def test_the_script_is_named_as_its_lines_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    start = Start(0, 0.0, script=str(tmp_path / "train.py"))
    assert recording_of(Record.made(start)).script == "train.py"
