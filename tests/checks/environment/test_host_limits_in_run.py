"""DD018 and DD019 on recorded runs."""

from typing import Any

import pytest

from ddpdoctor.judge import NotMeasured
from ddpdoctor.model import Level, Passed, Skipped, Source
from ddpdoctor.recorder.events.files import FileEvent, Save
from ddpdoctor.recorder.events.process import Raised, Threads
from ddpdoctor.trace import Trace
from ddpdoctor.trace.record import Record
from tests.support.judging import ask, check
from tests.support.recordings import recorded, replace, where

CPUS, DISK = check("DD018"), check("DD019")


def busy(threads: int, cpus: int | None, workers: int = 0) -> Trace:
    return recorded(
        change=lambda rank, one: replace(
            one,
            record=Record.made(Threads(threads, cpus)),
            loaders=tuple(replace(loader, workers=workers) for loader in one.loaders),
        )
    )


def test_more_threads_and_workers_than_cpus() -> None:
    (finding,) = ask(CPUS.code, Source.RUN, busy(4, 4, workers=3))
    assert finding.headline == "8 threads of torch and 6 DataLoader workers share 4 CPUs"
    assert (finding.level, finding.ranks) == (Level.INFO, (0, 1))


@pytest.mark.parametrize(("threads", "workers"), [(1, 0), (4, 0), (1, 3)])
def test_threads_and_workers_that_fit(threads: int, workers: int) -> None:
    assert isinstance(ask(CPUS.code, Source.RUN, busy(threads, 4, workers)), Passed)


def test_cpus_that_nobody_counted() -> None:
    assert isinstance(ask(CPUS.code, Source.RUN, busy(4, None)), Skipped)


def failing(kind: str, message: str, **more: Any) -> Trace:
    raised = Raised(kind, message, 5.0, at=where(60))
    return recorded(change=lambda rank, one: one if rank else replace(one, raised=raised, **more))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("OSError", "[Errno 28] No space left on device"),
        ("OSError", "[Errno 30] Read-only file system: '/data/out/last.pt'"),
        ("RuntimeError", "Parent directory /data/out does not exist."),
        ("RuntimeError", "[enforce fail at inline_container.cc:659] . unexpected pos 64 vs 0"),
    ],
)
def test_a_write_that_failed(kind: str, message: str) -> None:
    (finding,) = ask(DISK.code, Source.RUN, failing(kind, message))
    assert finding.headline.startswith("rank 0 could not write a file: ")
    assert (finding.ranks, finding.where) == ((0,), where(60))


def test_a_write_that_was_not_allowed() -> None:
    write = FileEvent("write", "/data/out/log.json", 4.0, where(60))
    denied = "[Errno 13] Permission denied: '/data/out/log.json'"
    (finding,) = ask(DISK.code, Source.RUN, failing("PermissionError", denied, files=(write,)))
    assert finding.headline == f"rank 0 could not write a file: {denied}"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("PermissionError", "[Errno 13] Permission denied: '/data/in/images.bin'"),
        ("RuntimeError", "unable to write to file </torch_1_2>: No space left on device (28), shared memory"),
        ("ValueError", "no label"),
    ],
)
def test_what_is_no_write_to_a_disk(kind: str, message: str) -> None:
    trace = failing(kind, message)
    broken = replace(trace, ranks=(replace(trace.ranks[0], finished=False, exit_code=1), trace.ranks[1]))
    with pytest.raises(NotMeasured):
        DISK.examine_run(broken)


def test_checkpoints_that_were_written() -> None:
    save = Save("/data/out/last.pt", where(60), 4.0, 5.0)
    passed = ask(DISK.code, Source.RUN, recorded(change=lambda rank, one: replace(one, saves=(save,))))
    assert passed == Passed("1 checkpoint written")
