"""The file of a record: what was written is there however the process ends, also where it cannot be mapped."""

import errno
import faulthandler
import mmap
import os
import signal
import sys
import threading
import time

import pytest

from ddpdoctor.job.record_watch import Watch
from ddpdoctor.recorder import writer
from ddpdoctor.recorder.writer import Writer
from ddpdoctor.trace.record import lines_of
from tests.support.processes import wait_until

ENDS = {
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGABRT": os.abort,
    "os._exit": lambda: os._exit(0),
}


def begin(folder) -> Writer:
    record = Writer(str(folder))
    record.header = '{"k":"Start"}'
    return record


def lines(folder) -> list[bytes]:
    return [line.rstrip() for file in sorted(folder.glob("*.jsonl")) for line in lines_of(file)]


def event(number: int, size: int = 0) -> str:
    return f'{{"k":"Step","n":{number},"x":"{"x" * size}"}}'


def end_a_child(folder, end, events: int, size: int) -> None:
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        try:
            record = begin(folder)
            for number in range(events):
                record.write(event(number, size))
            end()
        finally:
            os._exit(1)
    os.waitpid(child, 0)


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize(("events", "size"), [(1, 0), (7, 3), (300, 500), (40, 100_000)])
def test_every_event_is_there_however_the_process_ends(tmp_path, end, events, size):
    for turn in range(10):
        folder = tmp_path / str(turn)
        folder.mkdir()
        end_a_child(folder, end, events, size)
        expected = ['{"k":"Start"}', *(event(number, size) for number in range(events))]
        assert lines(folder) == [line.encode() for line in expected]


def test_events_that_are_killed_at_any_moment_are_a_beginning_of_all(tmp_path):
    for turn in range(20):
        folder = tmp_path / str(turn)
        folder.mkdir()
        child = os.fork()
        if child == 0:
            record, number = begin(folder), 0
            while True:
                record.write(event(number, number % 3000))
                number += 1
        while not lines(folder):
            time.sleep(0.001)
        time.sleep(0.001 * turn)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        _, *found = lines(folder)
        assert found == [event(number, number % 3000).encode() for number in range(len(found))]


def test_a_line_that_was_cut_short_is_none(tmp_path):
    (tmp_path / "1.jsonl").write_bytes(b'{"k":"Start"}\n{"k":"Step","n"' + bytes(5000))
    assert lines(tmp_path) == [b'{"k":"Start"}']


def no_room(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def no_mapping(*_, **__):
    raise OSError(errno.ENODEV, "No such device")


@pytest.mark.parametrize(
    ("owner", "name", "refuse"), [(os, "posix_fallocate", no_room), (mmap, "mmap", no_mapping)]
)
@pytest.mark.parametrize("after", [0, 3])
def test_where_no_file_can_be_mapped_lines_are_appended(tmp_path, monkeypatch, owner, name, refuse, after):
    record = begin(tmp_path)
    for number in range(6):
        if number == after:
            monkeypatch.setattr(owner, name, refuse)
        record.write(event(number, 50_000))
    record.flush()
    expected = ['{"k":"Start"}', *(event(number, 50_000) for number in range(6))]
    assert lines(tmp_path) == [line.encode() for line in expected]
    (file,) = tmp_path.glob("*.jsonl")
    assert file.read_bytes().count(b"\0") == 0


def test_threads_and_forks_write_each_line_once(tmp_path):
    record = begin(tmp_path)

    def write(thread: int) -> None:
        for number in range(500):
            record.write(event(1000 * thread + number))

    threads = [threading.Thread(target=write, args=(thread,)) for thread in range(4)]
    [thread.start() for thread in threads]
    child = os.fork()
    if child == 0:
        record.after_fork()
        record.write('{"k":"child"}')
        os._exit(0)
    os.waitpid(child, 0)
    [thread.join() for thread in threads]
    found = lines(tmp_path)
    numbers = sorted(line for line in found if b"Step" in line)
    assert numbers == sorted(event(1000 * thread + n).encode() for thread in range(4) for n in range(500))
    assert len(found) == 2000 + 3
    assert found.count(b'{"k":"child"}') == 1


def test_what_is_written_while_a_line_is_written_follows_it(tmp_path):
    record = begin(tmp_path)
    held = record._map_more

    def interrupted(size: int) -> None:
        record.write(event(2))
        held(size)

    record._map_more = interrupted  # as a signal's handler would, in the middle of it
    record.write(event(1))
    assert lines(tmp_path) == [b'{"k":"Start"}', event(1).encode(), event(2).encode()]


def test_more_may_be_written_after_the_zeros_were_taken_off(tmp_path):
    record = begin(tmp_path)
    record.write(event(1))
    (file,) = tmp_path.glob("*.jsonl")
    assert file.stat().st_size > 60_000
    record.trim()
    assert file.read_bytes().splitlines() == [b'{"k":"Start"}', event(1).encode()]
    record.write(event(2))
    record.trim()
    assert file.read_bytes().splitlines()[-1] == event(2).encode()
    Watch(tmp_path).look()


def test_a_record_ends_to_grow_but_has_the_last_words(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(writer, "LARGEST_RECORD", 1000)
    record = begin(tmp_path)
    for number in range(100):
        record.write(event(number))
    record.write('{"k":"exit"}', now=True)
    record.trim()
    (file,) = tmp_path.glob("*.jsonl")
    assert 1000 < file.stat().st_size < 1200
    assert lines(tmp_path)[-1] == b'{"k":"exit"}'


def test_a_folder_that_takes_nothing_more_is_told_to_nobody(tmp_path, monkeypatch):
    told, looks = [], []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    folder = tmp_path / "record"
    folder.mkdir()
    record = begin(folder)
    record.ticks.append(lambda: looks.append(1))
    monkeypatch.setattr(os, "posix_fallocate", refuse)
    record.write(event(0), now=True)  # lines are appended from now on
    os.close(record._file)
    record._file = os.open("/dev/full", os.O_WRONLY)  # a disk without space
    record.write(event(1))
    seen = len(looks)
    wait_until(lambda: len(looks) > seen + 2)
    assert told == []
    os.close(record._file)
    record._pid = 0  # its thread ends


def refuse(*_: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
