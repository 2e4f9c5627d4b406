"""What a job writes is passed on in order, labelled, whole."""

import io
import time
from pathlib import Path

import pytest

from ddpdoctor.job import output_forwarding
from ddpdoctor.job.output_forwarding import Lines, Output, Stream
from ddpdoctor.logs import input_files
from tests.support.processes import wait_until


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ([b"one\ntwo\n"], b"> one\n> two\n"),
        ([b"o", b"ne\nt", b"wo\n"], b"> one\n> two\n"),
        ([b"10%\r50%\r100%\ndone\n"], b"> 100%\n> done\n"),
        ([b"10%\r", b"50%\r", b"100%\r\n"], b"> 100%\n"),
        ([b"windows\r\n\r\n"], b"> windows\n> \n"),
        ([b"\xff\x00\xfe\n"], b"> \xff\x00\xfe\n"),
        ([b"no end"], b"> no end\n"),
        ([], b""),
    ],
)
def test_each_line_gets_its_label(written: list[bytes], shown: bytes) -> None:
    lines = Lines("> ")
    assert b"".join(lines.feed(data, 0.0) for data in written) + lines.finish() == shown


def test_a_line_without_end_is_shown_when_nothing_follows() -> None:
    lines = Lines("> ")
    assert lines.feed(b"Password: ", 0.0) == b""
    assert lines.feed(b"", 0.5) == b""
    assert lines.feed(b"", 2.0) == b"> Password: \n"
    assert lines.feed(b"thanks\n", 3.0) == b"> thanks\n"


def test_a_line_of_megabytes_is_passed_on_before_its_end() -> None:
    lines = Lines("> ")
    assert len(lines.feed(b"x" * 100_000, 0.0)) > 100_000


def streams(folder: Path) -> list[Stream]:
    return [
        Stream(folder / "0", False, "[rank 0] "),
        Stream(folder / "1", False, "[rank 1] "),
        Stream(folder / "2", True),
    ]


def test_files_are_followed_while_they_grow(tmp_path: Path) -> None:
    out, err = io.BytesIO(), io.BytesIO()
    output = Output(lambda: streams(tmp_path), out, err)
    (tmp_path / "1").write_bytes(b"first\n")
    wait_until(lambda: out.getvalue() == b"[rank 1] first\n")
    (tmp_path / "2").write_bytes(b"an error")
    wait_until(lambda: err.getvalue() == b"an error")
    output.finish()
    assert err.getvalue() == b"an error\n"
    assert output.said_something


def test_what_comes_last_is_not_lost(tmp_path: Path) -> None:
    out, err = io.BytesIO(), io.BytesIO()
    (tmp_path / "0").write_bytes(b"y\n" * 3_000_000 + b"the end")
    Output(lambda: streams(tmp_path), out, err).finish()
    assert out.getvalue().count(b"[rank 0] y\n") == 3_000_000
    assert out.getvalue().endswith(b"[rank 0] the end\n")


def test_the_middle_of_a_long_output_leaves_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_forwarding, "KEPT", 1 << 20)
    file, out = tmp_path / "stdout.log", io.BytesIO()
    file.write_bytes(b"the beginning\n" + b"x" * 99 + b"\n" + b"y" * 8_000_000 + b"\nthe end\n")
    Output(lambda: [Stream(file, False)], out, io.BytesIO()).finish()
    assert len(out.getvalue()) == file.stat().st_size
    assert out.getvalue().count(b"y") == 8_000_000
    assert file.stat().st_blocks * 512 < 5_000_000
    (stream,) = input_files.streams([str(file)])
    read = b"".join(stream.chunks)
    assert len(read) < 5_000_000
    assert read.startswith(b"the beginning\n")
    assert read.endswith(b"\nthe end\n")


def test_silence_says_nothing(tmp_path: Path) -> None:
    output = Output(lambda: streams(tmp_path), io.BytesIO(), io.BytesIO())
    output.finish()
    assert not output.said_something


def test_a_reader_that_has_gone_stops_nothing(tmp_path: Path) -> None:
    class Gone(io.BytesIO):
        def write(self, data: object, /) -> int:
            raise BrokenPipeError

    (tmp_path / "0").write_bytes(b"line\n")
    output = Output(lambda: streams(tmp_path), Gone(), io.BytesIO())
    time.sleep(0.1)
    output.finish()
