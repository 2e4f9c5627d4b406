from dataclasses import replace

import pytest

from ddpdoctor.judge import Verdict, merge
from ddpdoctor.launch import Launch
from ddpdoctor.model import Confidence, Level, Source
from ddpdoctor.trace import RankTrace
from tests.support.hosts import recorded_host
from tests.support.judging import check, only_finding, passed
from tests.support.traces import CLOSED_BY_PEER, broken, failed, healthy

AT_TIME_LIMIT = (
    "slurmstepd: error: *** STEP 1.0 ON node1 CANCELLED AT 2026-11-23T12:00:00 DUE TO TIME LIMIT ***"
)


def test_a_container_too_small_to_start_the_ranks():
    finding = only_finding("DD017", Source.HOST, recorded_host("container_v2", Launch(nproc=16)))
    assert finding.level is Level.FAIL
    assert finding.headline == "1.8 GiB of memory are free, 16 ranks need at least 2.5 GiB to start"
    assert finding.evidence[1].text == "control group: 200 MiB of 2 GiB used"


def test_a_container_too_small_to_train():
    finding = only_finding("DD017", Source.HOST, recorded_host("container_v2", Launch(nproc=8)))
    assert (finding.level, finding.headline) == (
        Level.WARN,
        "1.8 GiB of memory are free, 8 ranks need at least 2.1 GiB to train",
    )
    assert finding.fix.startswith("--nproc 6,")


def test_an_earlier_kill_is_information():
    finding = only_finding("DD017", Source.HOST, recorded_host("container_v1"))
    assert (finding.level, finding.headline) == (
        Level.INFO,
        "the kernel has killed 3 processes of this control group because of its memory limit",
    )
    assert finding.evidence[-1].text == "control group: oom_kill 3"


def test_the_machine_counts_where_no_limit_does():
    host = recorded_host(memory=[4 << 30, 100 << 20])
    assert only_finding("DD017", Source.HOST, host).headline.startswith("100 MiB of memory are free")


def test_two_cores_and_seven_gigabytes_pass():
    passed("DD017", Source.HOST, recorded_host(launch=Launch(nproc=8), memory=[7 << 30, 5 << 30]))


@pytest.mark.parametrize(
    "said",
    [
        "srun: error: node1: task 3: Out Of Memory",
        "slurmstepd-node1: error: StepId=1.0 exceeded memory limit (1665511424 > 1572864000), being killed",
    ],
)
def test_what_slurm_ended_for_its_memory(said):
    run = replace(broken(failed(0, CLOSED_BY_PEER)), log=("loss 0.1", said))
    finding = only_finding("DD017", Source.RUN, run)
    assert finding.headline == "a scheduler or supervisor ended the job because of its memory"
    assert finding.evidence[0].text == said


def test_a_run_that_slurm_ended_at_its_time_limit_or_that_ended_well_had_enough():
    passed("DD017", Source.RUN, healthy())
    passed("DD017", Source.RUN, replace(broken(failed(0, CLOSED_BY_PEER)), log=(AT_TIME_LIMIT,)))


def test_a_rank_that_was_killed_while_the_kernel_killed_a_process_of_its_control_group():
    run = broken(failed(0, CLOSED_BY_PEER), RankTrace(1, exit_code=-9))
    finding = only_finding("DD017", Source.RUN, replace(run, oom_kills=1))
    assert finding.headline == "rank 1 was killed by the kernel's out-of-memory killer"
    assert (finding.ranks, finding.confidence) == ((1,), Confidence.LIKELY)
    passed("DD017", Source.RUN, run)
    passed("DD017", Source.RUN, replace(broken(failed(0, CLOSED_BY_PEER)), oom_kills=1))
    run = replace(run, oom_kills=1)
    both = [
        Verdict(check(code), Source.RUN, (only_finding(code, Source.RUN, run),))
        for code in ("DD012", "DD017")
    ]
    assert [finding.code for finding in merge(both).findings] == ["DD017"]
