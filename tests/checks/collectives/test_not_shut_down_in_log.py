from ddpdoctor.model import Level, Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import leaves_alone, log, names, raised

WARNING = (
    "[rank0]:[W102 03:04:05 ProcessGroupNCCL.cpp:1538] Warning: WARNING: destroy_process_group() was not called before "
    "program exit, which can leak resources.\n"
)
OLDER = (
    "[rank1]:[W ProcessGroupNCCL.cpp:1168] Warning: WARNING: process group has NOT been destroyed before we destruct "
    "ProcessGroupNCCL.\n"
)
NAMED = [
    (WARNING, "the job ended without destroy_process_group"),
    (OLDER, "the job ended without destroy_process_group"),
]

test_it_is_named = names("DD310", NAMED)

test_what_is_another_matter_is_not = leaves_alone("DD310", ["destroy_process_group() took 0.2 s\n"])


def test_it_is_information_only():
    assert only_finding("DD310", Source.LOG, log(WARNING)).level is Level.INFO


def test_a_job_that_failed_had_no_chance():
    failed = log(raised(0, "ValueError", "image 17 is broken") + WARNING)
    assert skipped("DD310", Source.LOG, failed).reason == "the job failed, and did not come to its end"
