"""Folders that travel."""

import io
import zipfile
from array import array
from pathlib import Path

import pytest

from ddpdoctor.nodes import parcel
from ddpdoctor.nodes.parcel import Damaged, pack, unpack
from ddpdoctor.recorder.events.data import Integers
from ddpdoctor.trace.record import NUMBERS, is_missing, read_numbers


def test_files_arrive_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "job" / "record").mkdir(parents=True)
    record, log = tmp_path / "job" / "record" / "7.jsonl", tmp_path / "job" / "stderr.log"
    record.write_bytes(b'{"k":"Start"}\n' + bytes(100))
    log.write_text("")
    packed, cut = pack(tmp_path / "job", [record, log])
    assert cut == []
    unpack(packed, tmp_path / "there")
    assert (tmp_path / "there" / "record" / "7.jsonl").read_bytes() == record.read_bytes()
    assert (tmp_path / "there" / "stderr.log").read_text() == ""


def test_what_does_not_fit_is_named_and_its_end_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parcel, "LARGEST", 100)
    first, second = tmp_path / "a.log", tmp_path / "b.log"
    first.write_bytes(b"x" * 60)
    second.write_bytes(b"y" * 50 + b"the last words")
    packed, cut = pack(tmp_path, [first, second])
    assert cut == ["b.log"]
    unpack(packed, tmp_path / "there")
    assert (tmp_path / "there" / "b.log").read_bytes().endswith(b"the last words")


def test_of_numbers_that_do_not_fit_the_first_stay_where_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parcel, "LARGEST", 40)
    record = tmp_path / "7-1.jsonl"
    values = array("i", range(100, 120))
    record.with_suffix(NUMBERS).write_bytes(values.tobytes())
    packed, cut = pack(tmp_path, [record.with_suffix(NUMBERS)])
    assert cut == ["7-1.numbers"]
    unpack(packed, tmp_path / "there")
    arrived = tmp_path / "there" / record.name
    first, last = (Integers(10, offset=offset, type="i") for offset in (0, 40))
    assert read_numbers(arrived, first) == values[:10]
    assert not is_missing(arrived, first)
    assert read_numbers(arrived, last) is None
    assert is_missing(arrived, last)


def test_what_is_gone_meanwhile_is_named(tmp_path: Path) -> None:
    assert pack(tmp_path, [tmp_path / "gone"])[1] == ["gone"]


@pytest.mark.parametrize("name", ["../outside", "/etc/outside", "a/../../outside", ""])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as made:
        made.writestr(zipfile.ZipInfo(name), "x")
    with pytest.raises(Damaged):
        unpack(packed.getvalue(), tmp_path / "there")
    assert list(tmp_path.rglob("outside")) == []


def test_bytes_that_are_no_parcel(tmp_path: Path) -> None:
    with pytest.raises(Damaged):
        unpack(b"PK\x03\x04 and so on", tmp_path)
