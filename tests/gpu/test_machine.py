"""The machine, a live group with NCCL, and the bundled trainer."""

import csv
import subprocess
import time

import pytest
import torch

from ddpdoctor.host.nvml import read_gpus
from tests.gpu.support import HERE, checked, examined, keep, on_gpu, plain
from tests.support.command import ddpdoctor

pytestmark = on_gpu

QUERY = "index,name,uuid,memory.total,driver_version,pci.bus_id,ecc.errors.uncorrected.volatile.total"
MIB = 1 << 20
SHARED = HERE / "shared" / "balanced.py"


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
    rows = list(csv.reader(asked.splitlines(), skipinitialspace=True))
    gpus = read_gpus()
    assert len(rows) == len(gpus.devices)
    for (index, name, uuid, memory, driver, bus, ecc), gpu in zip(rows, gpus.devices, strict=True):
        assert (name in shown.out, driver in shown.out) == (True, True)
        assert (int(index), name, uuid, driver) == (gpu.index, gpu.name, gpu.uuid, gpus.driver)
        assert abs(gpu.memory_total / MIB - int(memory)) <= 1
        assert int(bus.replace(":", "").replace(".", ""), 16) == int(
            gpu.pci_bus_id.replace(":", "").replace(".", ""), 16
        )
        assert ecc == ("[N/A]" if gpu.ecc_uncorrected is None else str(gpu.ecc_uncorrected))


def test_what_nccl_logged_is_read_as_it_was(tmp_path):
    env = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "ALL"}
    (tmp_path / "job.log").write_text(plain(HERE / "right" / "sync_batchnorm.py", tmp_path, env))
    keep("nccl-info.log", (tmp_path / "job.log").read_text())
    done = ddpdoctor("explain", "--facts", "job.log", cwd=tmp_path)
    keep("nccl-facts.txt", done.out + done.err)
    assert done.status == 0
    assert "NCCL " + ".".join(map(str, torch.cuda.nccl.version())) in done.out
    assert "warning" not in done.out


def test_two_ranks_that_share_a_gpu_train_as_before_and_are_silent(tmp_path):
    before, after = tmp_path / "before.txt", tmp_path / "after.txt"
    plain(SHARED, tmp_path, {"LOSSES": str(before)}, nproc=2)
    words = ("--ignore", "host,group", "--nproc", "2", "--full", "--keep-files", str(SHARED))
    done = examined("shared-balanced", "check", *words, cwd=tmp_path, env={"LOSSES": str(after)})
    assert (done.codes(), done.status) == (set(), 0), done.out
    assert before.read_text() == after.read_text()


def test_a_rank_with_more_work_for_the_shared_gpu_is_named(tmp_path):
    words = ("--ignore", "host,group", "--nproc", "2", str(SHARED))
    done = examined("shared-slow-rank", "check", *words, cwd=tmp_path, env={"SLOW_RANK": "1"})
    slow = [finding for finding in done.report["findings"] if finding["code"] == "DD601"]
    assert [finding["ranks"] for finding in slow] == [[1]], done.out


def test_steps_that_only_queue_their_work_are_cut_in_time(tmp_path):
    began = time.monotonic()
    done = checked(HERE / "measured" / "long.py", tmp_path)
    seconds = time.monotonic() - began
    keep("long.txt", f"{seconds:.1f} s\n")
    assert (done.codes(), done.status) == (set(), 0), done.out
    assert done.report["run"]["shortened"]
    assert seconds < 150


def test_two_ranks_on_one_gpu_are_named_before_anything_hangs(tmp_path):
    done = examined("two-on-one", "check", "--nproc", "2", "--backend", "nccl", cwd=tmp_path)
    assert "DD801" in done.codes()


def test_four_ranks_share_a_gpu_with_gloo(tmp_path):
    done = examined("four-with-gloo", "check", "--nproc", "4", "--backend", "gloo", cwd=tmp_path)
    assert done.codes() == set()
