import pytest

from ddpdoctor.model import Level, Source
from tests.support.hosts import recorded_host
from tests.support.judging import only_finding, passed, skipped

UUID = "GPU-00000003-1111-2222-3333-444444444444"


def host(value):
    return recorded_host("8gpus", environ={"CUDA_VISIBLE_DEVICES": value})


@pytest.mark.parametrize(
    ("value", "problem", "shown"),
    [
        ("0,9", "names GPU 9, and this machine has 0-7", "GPU 0 "),
        ("9", "names GPU 9, and this machine has 0-7", "no GPU "),
        ("0,1,0", "names '0' twice", "no GPU "),
        ("0,+0", "names '+0' twice", "no GPU "),
        ("0-3", "has the entry '0-3', which is read as 0", "GPU 0 "),
        ("0 1", "has the entry '0 1', which is read as 0", "GPU 0 "),
        ("0;1", "has the entry '0;1', which is read as 0", "GPU 0 "),
        ("all", "has the entry 'all', which is not a number", "no GPU "),
        ("cuda:0", "has the entry 'cuda:0', which is not a number", "no GPU "),
        ("0,,1", "has an empty entry in its middle", "GPU 0 "),
        ("GPU-ffffffff", "names 'GPU-ffffffff', which is not a GPU of this machine", "no GPU "),
        (f"0,{UUID}", f"has the entry {UUID!r}, which is not a number", "GPU 0 "),
    ],
)
def test_what_cuda_does_not_understand(value, problem, shown):
    finding = only_finding("DD802", Source.HOST, host(value))
    assert finding.level is Level.FAIL
    assert finding.headline == f"CUDA_VISIBLE_DEVICES={value!r} {problem}"
    assert f"it shows {shown}" in finding.why
    assert finding.fix == "export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7"


@pytest.mark.parametrize(
    ("value", "count"),
    [
        ("0,1", 2),
        ("3, 1", 2),
        ("7", 1),
        ("0,1,", 2),
        (UUID, 1),
        ("GPU-00000003,GPU-00000001", 2),
        ("0,-1,1", 1),
    ],
)
def test_what_cuda_understands(value, count):
    assert f": {count} GPU" in passed("DD802", Source.HOST, host(value)).text


@pytest.mark.parametrize("value", ["", "-1", "NoDevFiles"])
def test_hiding_every_gpu_is_a_choice(value):
    assert passed("DD802", Source.HOST, host(value)).text.endswith(": 0 GPUs visible")


@pytest.mark.parametrize("value", ["MIG-aaaa", "MIG-GPU-00000000-1111-2222-3333-444444444444/1/0"])
def test_instances_of_a_divided_gpu_are_named_by_identifier(value):
    host = recorded_host("8gpus", environ={"CUDA_VISIBLE_DEVICES": value})
    host.system.recording["gpus"]["devices"][0]["mig_uuids"] = ["MIG-aaaa-bbbb"]
    assert passed("DD802", Source.HOST, host).text.endswith(": 1 GPU visible")


def test_an_unset_variable_shows_all():
    assert passed("DD802", Source.HOST, recorded_host("8gpus")).text == (
        "CUDA_VISIBLE_DEVICES is not set: 8 GPUs visible"
    )


def test_without_gpus_it_is_skipped():
    assert skipped("DD802", Source.HOST, recorded_host(environ={"CUDA_VISIBLE_DEVICES": "0,0"})).reason == (
        "this machine has no NVIDIA driver"
    )
