import pytest

from ddpdoctor.host.gpus import default_backend, default_nproc, visible_gpus
from ddpdoctor.host.torch_build import TorchBuild
from tests.support.hosts import recorded_host

WITH_NCCL = TorchBuild("2.13.0", "12.8", frozenset({"gloo", "nccl"}))


def host(name="8gpus", value=None, torch=WITH_NCCL):
    found = recorded_host(name, environ={} if value is None else {"CUDA_VISIBLE_DEVICES": value})
    found.torch = torch
    return found


@pytest.mark.parametrize(
    ("value", "indices"),
    [(None, [0, 1, 2, 3, 4, 5, 6, 7]), ("3,1", [3, 1]), ("0,9,1", [0]), ("1,1", []), ("-1", []), ("", [])],
)
def test_ranks_see_what_cuda_would_show(value, indices):
    assert [gpu.index for gpu in visible_gpus(host(value=value))] == indices


def test_a_lost_gpu_is_not_visible():
    assert [gpu.index for gpu in visible_gpus(host("lost_gpu"))] == [0, 1, 3]


def test_of_divided_gpus_cuda_shows_one_instance():
    divided = host()
    gpus = divided.system.recording["gpus"]["devices"]
    gpus[0]["mig_uuids"] = ["MIG-a", "MIG-b"]
    assert [gpu.index for gpu in visible_gpus(divided)] == [1, 2, 3, 4, 5, 6, 7]
    divided = host(value="MIG-a,MIG-b")
    divided.system.recording["gpus"]["devices"][0]["mig_uuids"] = ["MIG-a", "MIG-b"]
    assert [gpu.index for gpu in visible_gpus(divided)] == [0]


def test_one_rank_for_each_gpu_or_two():
    assert default_nproc(host()) == 8
    assert default_nproc(host(value="2")) == 1
    assert default_nproc(host("plain")) == 2
    assert default_nproc(host(value="")) == 2


def test_nccl_where_every_rank_gets_a_gpu_of_its_own():
    assert default_backend(host(), 8) == "nccl"
    assert default_backend(host(), 9) == "gloo"
    assert default_backend(host(value="0"), 2) == "gloo"
    assert default_backend(host("plain"), 2) == "gloo"
    assert default_backend(host(torch=TorchBuild("2.13.0")), 2) == "gloo"
    assert default_backend(host(torch=None), 2) == "gloo"
