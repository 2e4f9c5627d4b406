import pytest

from ddpdoctor.launch import Launch
from ddpdoctor.model import Confidence, Level, Source
from tests.support.hosts import recorded_host
from tests.support.judging import only_finding, passed, skipped

LEAKED = {
    "folders": {"/dev/shm": ["torch_4711_123_0", "torch_88_5_1", "sem.x", "torch_notes"]},
    "processes": [{"pid": 88, "command": ["python"]}],
}
SIZES = {"/dev/shm/torch_4711_123_0": 2 << 30, "/dev/shm/torch_88_5_1": 3 << 30}


def disks(total, free):
    return {"/": {"total": 10**12, "free": 10**11}, "/dev/shm": {"total": total, "free": free}}


@pytest.mark.parametrize(
    ("launch", "level"),
    [
        (Launch(), Level.INFO),
        (Launch(nproc=1, backend="nccl"), Level.INFO),
        (Launch(nproc=2, backend="nccl"), Level.WARN),
    ],
    ids=["gloo", "one GPU", "two GPUs"],
)
def test_what_docker_gives(launch, level):
    finding = only_finding("DD016", Source.HOST, recorded_host("small_shm", launch))
    assert finding.level is level
    assert finding.headline.startswith("/dev/shm has 64 MiB of 64 MiB free for ")


def test_a_full_one_fails_and_says_who_filled_it():
    host = recorded_host(disks=disks(64 << 20, 4096), sizes=SIZES, **LEAKED)
    finding = only_finding("DD016", Source.HOST, host)
    assert (finding.level, finding.headline) == (
        Level.FAIL,
        "/dev/shm has 4 KiB of 64 MiB free for 2 ranks",
    )
    assert finding.evidence[0].text == "1 file of processes that are gone: 2 GiB"
    assert "rm /dev/shm/torch_4711_*" in finding.fix


def test_a_leak_is_information():
    finding = only_finding(
        "DD016", Source.HOST, recorded_host(disks=disks(16 << 30, 8 << 30), sizes=SIZES, **LEAKED)
    )
    assert (finding.level, finding.confidence) == (Level.INFO, Confidence.LIKELY)
    assert (
        finding.headline == "2 GiB of 16 GiB in /dev/shm are held by torch files of processes that are gone"
    )


def test_a_small_leak_and_a_large_folder_pass():
    passed("DD016", Source.HOST, recorded_host(disks=disks(16 << 30, 8 << 30), **LEAKED))
    passed("DD016", Source.HOST, recorded_host())


def test_a_system_without_it():
    skipped("DD016", Source.HOST, recorded_host(disks={}))
