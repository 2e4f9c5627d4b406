"""The file of a record: what becomes of it when a run goes on and on."""

import pytest

from ddpdoctor.recorder import writer
from ddpdoctor.recorder.writer import Writer


def test_a_record_ends_to_grow_but_has_the_last_words(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(writer, "LARGEST_RECORD", 1000)
    record = Writer(str(tmp_path))
    for number in range(100):
        record.write(f'{{"k":"step","n":{number}}}')
        record.flush()
    record.write('{"k":"exit"}', now=True)
    record.close()
    (file,) = tmp_path.glob("*.jsonl")
    lines = file.read_text().splitlines()
    assert 1000 < file.stat().st_size < 1200
    assert lines[-1] == '{"k":"exit"}'
