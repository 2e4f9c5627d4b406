import pytest

from ddpdoctor.model import Level, Source
from tests.support.hosts import recorded_host
from tests.support.judging import only_finding, passed, skipped


def host(log="", name="NVIDIA L40S", **facts):
    gpu = {"index": 0, "name": name, "pci_bus_id": "00000000:3B:00.0", **facts}
    return recorded_host(gpus={"devices": [gpu]}, kernel_log=log, files={"/proc/uptime": "200000.00 1.00"})


def xid(number, at, bus="0000:3b:00"):
    return f"<4>[{at:12.6f}] NVRM: Xid (PCI:{bus}): {number}, pid=1, name=python, details\n"


def test_a_lost_gpu_fails_once_though_the_log_tells_of_it_too():
    finding = only_finding("DD805", Source.HOST, recorded_host("lost_gpu"))
    assert finding.level is Level.FAIL
    assert finding.headline == "GPU 2 does not answer: GPU is lost"


def test_a_lost_gpu_that_is_left_out_stays_silent():
    passed("DD805", Source.HOST, recorded_host("lost_gpu", environ={"CUDA_VISIBLE_DEVICES": "0,1"}))


def test_uncorrected_memory_errors_are_a_warning():
    finding = only_finding("DD805", Source.HOST, host(ecc_uncorrected=2))
    assert finding.level is Level.WARN
    assert finding.headline == "GPU 0 has had 2 uncorrected memory errors since the driver was loaded"


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("HwThermalSlowdown", "heat"),
        ("SwThermalSlowdown", "heat"),
        ("HwPowerBrakeSlowdown", "a power brake signal"),
        ("HwSlowdown", "heat or power"),
    ],
)
def test_a_clock_lowered_for_heat_or_power_is_a_warning(reason, cause):
    finding = only_finding("DD805", Source.HOST, host(throttle_reasons=[reason]))
    assert finding.level is Level.WARN
    assert finding.headline == f"GPU 0 has lowered its clock because of {cause}"


def test_on_a_laptop_it_is_information():
    laptop = host(name="NVIDIA GeForce RTX 4070 Laptop GPU", throttle_reasons=["SwThermalSlowdown"])
    assert only_finding("DD805", Source.HOST, laptop).level is Level.INFO


def test_a_recent_xid_of_the_hardware_is_a_warning():
    log = xid(79, 180000) + xid(79, 192800)
    finding = only_finding("DD805", Source.HOST, host(log))
    assert finding.level is Level.WARN
    assert finding.headline == "GPU 0 reported Xid 79 2 hours ago: the GPU fell off the bus"
    assert finding.evidence[0].text.startswith(
        "2 times, last: [192800.000000] NVRM: Xid (PCI:0000:3b:00): 79"
    )


def test_old_xids_those_of_programs_and_of_other_gpus_stay_silent():
    log = xid(79, 100000) + xid(31, 199000) + xid(43, 199000) + xid(48, 199000, bus="0000:5e:00")
    assert passed("DD805", Source.HOST, host(log)).text == "1 GPU without errors"


def test_the_power_limit_and_absent_counters_stay_silent():
    passed("DD805", Source.HOST, host(throttle_reasons=["SwPowerCap"], ecc_uncorrected=None))


def test_skips():
    assert skipped("DD805", Source.HOST, recorded_host()).reason == "this machine has no NVIDIA driver"
    hidden = recorded_host("lost_gpu", environ={"CUDA_VISIBLE_DEVICES": "-1"})
    assert skipped("DD805", Source.HOST, hidden).reason == "no GPU is visible"
