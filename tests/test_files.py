"""Files that are complete or absent, and files that grow while they are read."""

import json

import pytest

from ddpdoctor.files import GrowingFile, read_json, write_json


@pytest.fixture
def file(tmp_path):
    return tmp_path / "lines.jsonl"


def append(file, text):
    with file.open("a") as opened:
        opened.write(text)


def test_a_value_is_whole_or_absent(tmp_path):
    assert read_json(tmp_path / "value.json") is None
    write_json(tmp_path / "value.json", {"torch": "2.13"})
    assert read_json(tmp_path / "value.json") == {"torch": "2.13"}
    assert [path.name for path in tmp_path.iterdir()] == ["value.json"]


@pytest.mark.parametrize("text", ["", '{"torch": "2.', "\xff"])
def test_a_value_that_was_cut_short_is_absent(text, tmp_path):
    (tmp_path / "value.json").write_text(text, encoding="latin-1")
    assert read_json(tmp_path / "value.json") is None
    assert read_json(tmp_path / "value.json" / "below") is None


def test_lines_come_once_and_when_they_are_complete(file):
    growing = GrowingFile(file)
    assert growing.new_lines() == []
    append(file, '{"step": 1}\n{"step"')
    assert growing.new_lines() == [b'{"step": 1}']
    assert growing.new_lines() == []
    append(file, ": 2}\n\n")
    assert growing.new_lines() == [b'{"step": 2}', b""]


def test_a_file_that_was_cut_is_read_anew(file):
    append(file, "".join(json.dumps({"step": step}) + "\n" for step in range(10)))
    growing = GrowingFile(file)
    assert len(growing.new_lines()) == 10
    file.write_text('{"step": 5}\n')
    assert growing.new_lines() == [b'{"step": 5}']
