from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import explained, log
from tests.support.waits import wait

JOIN = """\
Traceback (most recent call last):
  File "/home/user/executor.py", line 82, in join
    dist.monitored_barrier(group=joined)
RuntimeError: [../gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 30000ms for recv operation to complete
"""


def bar(rank: int, total: int) -> str:
    return f"[rank{rank}]: 99%|####| {total - 1}/{total} [05:10<00:01, 1.2it/s]\n"


def test_progress_bars_of_different_lengths():
    text = bar(0, 100) + bar(1, 100) + bar(2, 98) + wait(0) + wait(1)
    finding = only_finding("DD106", Source.LOG, log(text))
    assert finding.headline == "ranks have different numbers of batches: rank 2 98 and ranks 0-1 100"


def test_a_wait_that_asks_who_still_has_batches():
    finding = only_finding("DD106", Source.LOG, log(JOIN))
    assert finding.headline == "ranks ran out of batches at different steps"
    assert [one.code for one in explained(JOIN)] == ["DD106"]


def test_bars_of_one_length():
    skipped("DD106", Source.LOG, log(bar(0, 100) + bar(1, 100) + wait(0) + wait(1)))


def test_bars_of_different_lengths_in_a_job_that_runs():
    skipped("DD106", Source.LOG, log(bar(0, 100) + bar(1, 98)))
