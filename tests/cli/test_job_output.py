"""A script that breaks: what it printed, beside what its ranks recorded."""

from pathlib import Path

from ddpdoctor import registry
from ddpdoctor.cli.run_judging import with_output
from ddpdoctor.job.torchrun import ERR
from ddpdoctor.judge import Verdict, judge, merge
from ddpdoctor.model import Finding, Source
from ddpdoctor.trace import RankTrace
from tests.support.traces import CLOSED_BY_PEER, broken, failed

DUPLICATE = "host0:71:71 [0] init.cc:943 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1a\n"


REFUSED = failed(0, "NCCL error in: ProcessGroupNCCL.cpp:2251, invalid usage", kind="DistBackendError")
ABORTED = """\
E1121 18:00:00.000000 1 site-packages/torch/distributed/elastic/multiprocessing/api.py:1010] failed (exitcode: -6) \
local_rank: 0 (pid: 71) of binary: /usr/bin/python3
"""


def judged(folder: Path, printed: str, *ranks: RankTrace) -> list[str]:
    return [finding.code for finding in findings(folder, printed, *ranks)]


def findings(folder: Path, printed: str, *ranks: RankTrace) -> tuple[Finding, ...]:
    (folder / ERR).write_text(printed)
    trace = broken(*(ranks or (REFUSED,)))
    exception = [check for check in registry.select(Source.RUN) if check.code == "DD304"]
    verdicts: list[Verdict] = judge(Source.RUN, exception, trace, print)
    merged = merge(with_output(verdicts, trace, [folder], registry.select(Source.LOG), print))
    return merged.findings


def test_a_cause_that_was_printed_stands_for_the_exception(tmp_path):
    (cause,) = findings(tmp_path, DUPLICATE)
    assert (cause.code, cause.where and cause.where.line) == ("DD801", 12)


def test_an_exception_stands_where_the_output_names_no_cause(tmp_path):
    assert judged(tmp_path, "epoch 1\n") == ["DD304"]


def test_a_job_that_printed_nothing(tmp_path):
    assert judged(tmp_path, "") == ["DD304"]


def test_a_rank_that_chose_its_exit_status_comes_before_the_abort_of_its_victim(tmp_path):
    assert judged(tmp_path, ABORTED, failed(0, CLOSED_BY_PEER), RankTrace(1, exit_code=3)) == ["DD304"]


def test_an_abort_of_the_rank_itself_was_printed(tmp_path):
    assert judged(tmp_path, ABORTED, RankTrace(0, exit_code=1)) == ["DD012"]
