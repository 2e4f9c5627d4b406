"""A script that breaks: what it printed, beside what its ranks recorded."""

from pathlib import Path

from ddpdoctor import registry
from ddpdoctor.cli.job_output import with_output
from ddpdoctor.job.remains import ERR
from ddpdoctor.judge import Verdict, judge, merge
from ddpdoctor.model import Source
from tests.support.traces import broken, failed

DUPLICATE = "host0:71:71 [0] init.cc:943 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1a\n"


def judged(folder: Path, printed: str) -> list[str]:
    (folder / ERR).write_text(printed)
    trace = broken(
        failed(0, "NCCL error in: ProcessGroupNCCL.cpp:2251, invalid usage", kind="DistBackendError")
    )
    exception = [check for check in registry.select(Source.RUN) if check.code == "DD304"]
    verdicts: list[Verdict] = judge(Source.RUN, exception, trace, print)
    _, findings = merge(with_output(verdicts, folder, registry.select(Source.LOG), print))
    return [finding.code for finding in findings]


def test_a_cause_that_was_printed_stands_for_the_exception(tmp_path):
    assert judged(tmp_path, DUPLICATE) == ["DD801"]


def test_an_exception_stands_where_the_output_names_no_cause(tmp_path):
    assert judged(tmp_path, "epoch 1\n") == ["DD304"]


def test_a_job_that_printed_nothing(tmp_path):
    assert judged(tmp_path, "") == ["DD304"]
