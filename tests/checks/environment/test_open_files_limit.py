import resource
import subprocess
import sys

import pytest

from ddpdoctor.launch import Launch
from ddpdoctor.model import Level, Source
from tests.support.hosts import recorded_host
from tests.support.judging import only_finding, passed


def limited(soft, hard, **launch):
    return recorded_host(launch=Launch(**launch), rlimits={"NOFILE": [soft, hard]})


def test_64_files_are_too_few():
    finding = only_finding("DD015", Source.HOST, limited(64, 4096))
    assert finding.level is Level.FAIL
    assert finding.headline == "64 open files are allowed, a rank of 2 needs about 97"
    assert finding.fix.startswith("ulimit -n $(ulimit -Hn)")


def test_a_low_hard_limit_needs_the_administrator():
    assert "the hard limit is 64" in only_finding("DD015", Source.HOST, limited(64, 64)).fix


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
@pytest.mark.parametrize("nproc", [1, 2, 8])
def test_1024_files_are_enough_for_a_node(nproc, backend):
    passed("DD015", Source.HOST, limited(1024, 4096, nproc=nproc, backend=backend))


def test_gloo_needs_a_socket_for_each_peer():
    finding = only_finding("DD015", Source.HOST, limited(1024, -1, nproc=8, nnodes=200))
    assert (finding.level, finding.fix[:9]) == (Level.FAIL, "ulimit -n")
    near = only_finding("DD015", Source.HOST, limited(1024, 1024, nproc=8, nnodes=64))
    assert near.level is Level.INFO


def test_no_limit():
    passed("DD015", Source.HOST, limited(-1, -1))


def test_a_real_limit_is_read():
    program = (
        "from ddpdoctor.host import Host, System; from ddpdoctor.launch import Launch;"
        "from tests.support.judging import only_finding; from ddpdoctor.model import Source;"
        "print(only_finding('DD015', Source.HOST, Host(Launch(), System())).headline)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout == "64 open files are allowed, a rank of 2 needs about 97\n"
