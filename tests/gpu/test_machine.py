"""The machine, a live group with NCCL, and the bundled trainer."""

import csv
import subprocess

import pytest

from tests.gpu.support import examined, keep, on_gpu
from tests.support.command import ddpdoctor

pytestmark = on_gpu

QUERY = "index,name,memory.total,driver_version"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """``ddpdoctor check`` without a script, on one rank with NCCL."""
    folder = tmp_path_factory.mktemp("whole")
    return examined("check-nccl", "check", "--nproc", "1", "--backend", "nccl", "-v", cwd=folder)


def test_a_healthy_machine_is_silent(whole):
    assert whole.codes() == set()
    assert whole.status == 0


def test_every_check_came_to_a_result(whole):
    assert [line for line in whole.report["checks"] if line["outcome"] == "error"] == []


def test_nccls_version_is_shown(whole):
    assert whole.report["run"]["backend"] == "nccl"
    assert "NCCL version" in whole.out


def test_the_gpus_are_those_of_nvidia_smi(tmp_path):
    query = ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"]
    asked = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    keep("nvidia-smi.csv", asked)
    shown = ddpdoctor("check", "--select", "host", "-v", cwd=tmp_path)
    keep("host.txt", shown.out)
    for _, name, _, driver in csv.reader(asked.splitlines(), skipinitialspace=True):
        assert name in shown.out
        assert driver in shown.out


def test_two_ranks_on_one_gpu_are_named_before_anything_hangs(tmp_path):
    done = examined("two-on-one", "check", "--nproc", "2", "--backend", "nccl", cwd=tmp_path)
    assert "DD801" in done.codes()


def test_four_ranks_share_a_gpu_with_gloo(tmp_path):
    done = examined("four-with-gloo", "check", "--nproc", "4", "--backend", "gloo", cwd=tmp_path)
    assert done.codes() == set()
