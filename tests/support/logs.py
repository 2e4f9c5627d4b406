"""A job's output as a check reads it, from its text; and the tests that every check of such an output has."""

from collections.abc import Callable, Sequence

import pytest

from ddpdoctor import registry
from ddpdoctor.judge import merge
from ddpdoctor.logs import root_cause
from ddpdoctor.logs.log import Log
from ddpdoctor.logs.read import Stream, read
from ddpdoctor.model import Finding, Source
from tests.support.judging import only_finding, skipped

SUMMARY = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-01-02_03:04:05
  host      : node-a
  rank      : {rank} (local_rank: {rank})
  exitcode  : {code} (pid: {pid})
  error_file: <N/A>
  traceback : {traceback}
============================================================
"""
TRAINING = "epoch 1 step 10 loss 2.31\n"


def log(text: str, *more: str) -> Log:
    """What the readers make of this text, and of further texts as further files."""
    texts = {f"job{number}.log" if number else "job.log": one for number, one in enumerate((text, *more))}
    streams = [Stream(name, [one.encode()]) for name, one in texts.items()]
    return read(streams, root_cause.words(registry.all_checks()))


def explained(text: str, *more: str) -> tuple[Finding, ...]:
    """What ``ddpdoctor explain`` finds, the root cause first."""
    broken: list[str] = []
    verdicts = root_cause.examine(log(text, *more), registry.select(Source.LOG), broken.append)
    assert not broken, broken
    return merge(verdicts).findings


def names(code: str, named: Sequence[tuple[str, str]]) -> Callable[..., None]:
    """A test for each output and headline: this check says it, and it is the root cause."""

    @pytest.mark.parametrize(("text", "headline"), named)
    def test(text: str, headline: str) -> None:
        assert only_finding(code, Source.LOG, log(text)).headline == headline
        assert explained(text)[0].code == code

    return test


def leaves_alone(code: str, texts: Sequence[str]) -> Callable[..., None]:
    """A test for each output: this check has nothing to say of it."""

    @pytest.mark.parametrize("text", texts)
    def test(text: str) -> None:
        skipped(code, Source.LOG, log(text))

    return test


def lets_survive(code: str, named: Sequence[tuple[str, str]]) -> Callable[..., None]:
    """A test for each output: this check has nothing to say of it where training goes on afterwards."""
    return leaves_alone(code, [text + 8 * TRAINING for text, _ in named])


def raised(rank: int, kind: str, message: str, file: str = "/home/user/train.py", line: int = 12) -> str:
    """A rank's traceback, with the prefix that torch gives it."""
    text = f'Traceback (most recent call last):\n  File "{file}", line {line}, in main\n    step()\n{kind}: {message}'
    return "".join(f"[rank{rank}]: {part}\n" for part in text.splitlines())


def summary(rank: int = 0, code: int = 1, pid: int = 100, traceback: str = "") -> str:
    """The end of torchrun's output where a rank ended with this exit status."""
    said = (
        f"Signal {-code} received by PID {pid}"
        if code < 0
        else "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
    )
    return SUMMARY.format(rank=rank, code=code, pid=pid, traceback=traceback or said)
