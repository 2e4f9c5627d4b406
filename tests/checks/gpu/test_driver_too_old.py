import pytest

from ddpdoctor.host.torch_build import TorchBuild
from ddpdoctor.launch import Launch
from ddpdoctor.model import Level, Source
from tests.support.hosts import recorded_host
from tests.support.judging import only_finding, passed, skipped


def host(cuda, driver_cuda=(12, 4), backend="nccl", environ=None):
    gpus = {"driver": "550.54.15", "cuda_driver_version": driver_cuda, "devices": [{"index": 0}]}
    found = recorded_host(launch=Launch(backend=backend), gpus=gpus, environ=environ or {})
    found.torch = TorchBuild("2.13.0", cuda)
    return found


def test_a_higher_major_version_fails():
    finding = only_finding("DD808", Source.HOST, host("13.0"))
    assert finding.level is Level.FAIL
    assert finding.headline == "driver 550.54.15 supports CUDA 12.4, and torch is built for CUDA 13.0"
    assert finding.fix.startswith("update the driver to 580.65.06 or later; or install a torch for CUDA 12")


def test_ranks_on_gloo_can_do_without_gpus():
    assert only_finding("DD808", Source.HOST, host("13.0", backend="gloo")).level is Level.WARN


@pytest.mark.parametrize("cuda", ["12.1", "12.4", "12.8", "11.8"])
def test_the_same_major_version_and_older_ones_run(cuda):
    assert passed("DD808", Source.HOST, host(cuda)).text == (
        f"driver 550.54.15, CUDA 12.4; torch is built for CUDA {cuda}"
    )


def test_skips():
    assert skipped("DD808", Source.HOST, recorded_host()).reason == "this machine has no NVIDIA driver"
    assert "without CUDA" in skipped("DD808", Source.HOST, host(None)).reason
    assert "does not report" in skipped("DD808", Source.HOST, host("12.8", None)).reason
    hidden = host("13.0", backend="gloo", environ={"CUDA_VISIBLE_DEVICES": ""})
    assert skipped("DD808", Source.HOST, hidden).reason == "no GPU is visible"
    no_torch = host("12.8")
    no_torch.torch = None
    assert skipped("DD808", Source.HOST, no_torch).reason == "torch is not installed"
