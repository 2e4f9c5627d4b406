import pytest

from ddpdoctor.group.group_record import GroupRecord, Stage
from ddpdoctor.launch import Launch
from ddpdoctor.model import Level, Source
from tests.support.hosts import recorded_host
from tests.support.judging import only_finding, passed, skipped

CUDA = {
    "packages": {"torch": "/t"},
    "files": {"/t/version.py": "__version__ = '2.13.0+cu130'\ncuda: Optional[str] = '13.0'\n"},
}
ROCM = {
    "packages": {"torch": "/t"},
    "files": {"/t/version.py": "__version__ = '2.13.0+rocm7'\nhip: Optional[str] = '7.0'\n"},
}
GPU = {"devices": [{"index": 0}]}


@pytest.mark.parametrize(
    ("backend", "changes", "headline"),
    [
        ("nccl", {}, "backend nccl is not compiled into torch 2.13.0, which has gloo"),
        ("mpi", CUDA, "backend mpi is not compiled into torch 2.13.0+cu130, which has gloo, nccl"),
        ("nccl", CUDA, "backend nccl has no GPU to use: this machine has no NVIDIA driver"),
        ("cpu:gloo,cuda:nccl", CUDA, "backend nccl has no GPU to use: this machine has no NVIDIA driver"),
        ("ncll", CUDA, "backend 'ncll' is not known to torch 2.13.0+cu130"),
        ("smddp", CUDA, "backend smddp is registered by smdistributed, which is not installed"),
    ],
)
def test_a_backend_that_is_not_there(backend, changes, headline):
    finding = only_finding("DD013", Source.HOST, recorded_host(launch=Launch(backend=backend), **changes))
    assert (finding.level, finding.headline) == (Level.FAIL, headline)


def test_a_misspelt_backend_is_told_the_nearest():
    finding = only_finding("DD013", Source.HOST, recorded_host(launch=Launch(backend="ncll"), **CUDA))
    assert finding.fix == "--backend nccl"


@pytest.mark.parametrize(
    ("backend", "changes"),
    [
        ("gloo", {}),
        ("nccl", {**CUDA, "gpus": GPU}),
        ("cpu:gloo,cuda:nccl", {**CUDA, "gpus": GPU}),
        ("nccl", ROCM),
        ("smddp", {"packages": {"smdistributed": "/s"}}),
        ("fake", {}),
    ],
)
def test_a_backend_that_is_there(backend, changes):
    passed("DD013", Source.HOST, recorded_host(launch=Launch(backend=backend), **changes))


def test_without_torch_there_is_nothing_to_ask():
    assert "no torch" in skipped("DD013", Source.HOST, recorded_host(installed={})).reason


def test_a_torch_that_cannot_be_imported():
    broken = "torch was not imported: ImportError: libcudart.so.12: cannot open shared object file"
    record = GroupRecord(
        Launch(), stage=Stage.IMPORT, broken=broken, log=("Traceback", "ImportError: libcudart.so.12")
    )
    finding = only_finding("DD013", Source.GROUP, record)
    assert finding.headline == "torch cannot be imported"
    assert "libcudart" in finding.why


def test_an_import_that_goes_on_is_slow_and_not_broken():
    broken = "torch was not imported within 183 s"
    record = GroupRecord(Launch(), stage=Stage.IMPORT, broken=broken, hung="import")
    finding = only_finding("DD013", Source.GROUP, record)
    assert (finding.level, finding.headline) == (Level.WARN, broken)
    assert "reinstall" not in finding.fix


def test_an_import_that_outlasted_the_whole_check_is_nobodys_fault():
    record = GroupRecord(Launch(), stage=Stage.IMPORT, broken="the time limit was reached", out_of_time=True)
    assert skipped("DD013", Source.GROUP, record).reason == "the time limit was reached"


def test_a_working_directory_that_was_deleted():
    finding = only_finding("DD013", Source.HOST, recorded_host(working_directory=None))
    assert finding.headline == "the working directory was deleted, and torch cannot be imported there"


def test_a_disk_that_is_full_is_another_disease():
    full = GroupRecord(Launch(), stage=Stage.IMPORT, broken="no space left", unwritable=True)
    assert skipped("DD013", Source.GROUP, full).reason == "no space left"
