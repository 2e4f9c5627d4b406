import pytest

from ddpdoctor.launch import Launch
from ddpdoctor.model import Level, Source
from tests.support.hosts import recorded_host
from tests.support.judging import only_finding, passed


def test_threads_far_above_the_quota():
    host = recorded_host("container_v1", Launch(nproc=4), environ={"OMP_NUM_THREADS": 16})
    finding = only_finding("DD018", Source.HOST, host)
    assert finding.level is Level.WARN
    assert finding.headline == "OMP_NUM_THREADS=16 gives 4 ranks 64 threads on 4 CPUs"
    assert finding.fix == "export OMP_NUM_THREADS=1"
    assert finding.evidence[0].text.endswith("64 in the affinity mask, the control group's quota is 4")


@pytest.mark.parametrize("environ", [{}, {"OMP_NUM_THREADS": 1}, {"OMP_NUM_THREADS": "odd"}])
def test_eight_ranks_on_two_cpus_are_information(environ):
    host = recorded_host(launch=Launch(nproc=8), cpus=[2, 2], environ=environ)
    finding = only_finding("DD018", Source.HOST, host)
    assert (finding.level, finding.headline) == (Level.INFO, "8 ranks share 2 CPUs")


def test_a_fraction_of_a_cpu():
    finding = only_finding("DD018", Source.HOST, recorded_host("container_v2"))
    assert finding.headline == "2 ranks share 1.5 CPUs"


@pytest.mark.parametrize("threads", ["4", "4,2", ""])
def test_threads_that_fit_pass(threads):
    passed(
        "DD018",
        Source.HOST,
        recorded_host(launch=Launch(nproc=2), cpus=[8, 8], environ={"OMP_NUM_THREADS": threads}),
    )
