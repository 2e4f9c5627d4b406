"""Output that was made to break a reader: bounded time and memory, no exception, nothing that moves a cursor."""

import random
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddpdoctor import registry
from ddpdoctor.judge import merge
from ddpdoctor.logs import root_cause
from ddpdoctor.logs.read import Stream, read
from ddpdoctor.model import Report, Source
from ddpdoctor.redact import clean
from ddpdoctor.report import Format, render
from tests.support.logs import explained, raised, summary
from tests.support.waits import wait

OUTPUTS = sorted((Path(__file__).parent / "outputs").glob("*.log"))
WORDS = (
    raised(1, "ValueError", "bad"),
    wait(0),
    summary(1, -9),
    "Traceback (most recent call last):\n",
    "NCCL WARN ",
)
BOMBS = (
    "1",
    "a",
    " ",
    "[",
    "\\",
    "Connect to 1",
    "loss",
    "1/1 [",
    'File "',
    "[rank0]:",
    "\x1b]",
    "(pid=",
    "Error: ",
)


def report_of(text: bytes) -> str:
    checks, broken = registry.select(Source.LOG), []
    log = read([Stream("job.log", [text])], root_cause.words(checks))
    merged = merge(root_cause.examine(log, checks, broken.append))
    assert broken == []
    report = Report("0", ("explain",), 1, 0.0, merged.results, merged.findings)
    return render(clean(report, {}), Format.TERMINAL)


@given(
    st.lists(
        st.one_of(st.binary(max_size=60), st.sampled_from([word.encode() for word in WORDS])), max_size=12
    )
)
@settings(deadline=None, max_examples=60)
def test_any_bytes(parts):
    assert all(character.isprintable() or character == "\n" for character in report_of(b"\n".join(parts)))


@pytest.mark.parametrize("path", OUTPUTS, ids=lambda path: path.stem)
def test_outputs_with_bytes_changed(path):
    chance = random.Random(path.name)
    text = bytearray(path.read_bytes())
    for _ in range(max(5, len(text) // 100)):
        text[chance.randrange(len(text))] = chance.randrange(256)
    shown = report_of(bytes(text[: chance.randrange(len(text))]))
    assert all(character.isprintable() or character == "\n" for character in shown)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_line_that_makes_patterns_slow(bomb):
    line = (bomb * 70_000)[:70_000]
    report_of(
        "".join(
            f"{word.rstrip()} {line}\n" for word in ("Error", "Connect to", "NCCL WARN", "Got", "")
        ).encode()
    )


@pytest.mark.timeout(60)
@pytest.mark.parametrize("bomb", ["-", ".", ":", "-.", "a-", *BOMBS])
def test_a_last_line_that_makes_patterns_slow(bomb):
    line = (bomb * 70_000)[:70_000]
    report_of(f"step 1 loss 2.0\nCUDA out of memory\n{line}\n".encode())


@pytest.mark.parametrize("piece", [b"x", b"Error ", b" 10%|#| 1/10 [00:01<00:09, 1it/s]\r"])
def test_a_line_without_end_takes_little_memory(piece):
    chunk = piece * (2**20 // len(piece))
    tracemalloc.start()
    log = read([Stream("job.log", (chunk for _ in range(64)))], ["Error"])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert log.read == 1
    assert most < 16 * 2**20


@pytest.mark.slow
def test_a_failure_repeated_without_end_takes_little_memory():
    chunk = "".join(raised(rank, "ValueError", f"sample {rank}") for rank in range(2000)).encode()
    tracemalloc.start()
    read([Stream("job.log", (chunk for _ in range(10)))], ["Error"])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 64 * 2**20


def test_another_tools_secrets_are_masked():
    text = raised(0, "ValueError", "denied for token=hf_abcdefghijklmnop1234, url https://me:pass@host/x")
    assert "hf_" not in report_of(text.encode())
    assert "pass@" not in report_of(text.encode())


def test_control_sequences_are_escaped():
    text = raised(0, "ValueError", "\x1b[2Jcleared \x07 \u202e reversed")
    shown = report_of(text.encode())
    assert "cleared" in shown
    assert not set("\x1b\x07\u202e") & set(shown)
    assert explained(text)[0].code == "DD304"
