"""Long lists of integers beside a record."""

from array import array

from ddpdoctor.recorder.events.data import Integers
from ddpdoctor.trace.record import read_numbers


def test_each_way_to_describe_them(tmp_path):
    record = tmp_path / "1.jsonl"
    with record.with_suffix(".numbers").open("wb") as file:
        array("i", [7, 8, 9, -1]).tofile(file)
    assert read_numbers(record, Integers(2, (1, 2))) == (1, 2)
    assert read_numbers(record, Integers(3, first=5, step=-2)) == range(5, -1, -2)
    assert read_numbers(record, Integers(3, offset=4, type="i")) == array("i", [8, 9, -1])


def test_what_is_not_whole_is_not_there(tmp_path):
    record = tmp_path / "1.jsonl"
    described = Integers(3, offset=0)
    assert read_numbers(record, described) is None
    record.with_suffix(".numbers").write_bytes(b"12345")
    assert read_numbers(record, described) is None
    assert read_numbers(record, Integers(10**12, offset=0)) is None
    assert read_numbers(record, None) is None
