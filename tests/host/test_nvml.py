"""NVML's facts, from a fake pynvml: no test needs a GPU."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from ddpdoctor.host import nvml
from ddpdoctor.host.nvml import Gpu, Gpus


class NVMLError(Exception):
    def __init__(self, value, text=""):
        super().__init__(text)
        self.value = value


def raises(value, text=""):
    def call(*arguments):
        raise NVMLError(value, text)

    return call


class FakeNvml(ModuleType):
    """pynvml with two GPUs that support nothing but their names; a test adds what it is about."""

    NVMLError = NVMLError
    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_ERROR_NO_PERMISSION = 4
    NVML_ERROR_DRIVER_NOT_LOADED = 9
    NVML_ERROR_GPU_IS_LOST = 15
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18
    NVML_ERROR_UNKNOWN = 999
    NVML_P2P_CAPS_INDEX_READ = 0
    NVML_P2P_CAPS_INDEX_WRITE = 1
    NVML_P2P_CAPS_INDEX_NVLINK = 2

    def __init__(self, count=2):
        super().__init__("pynvml")
        self.NVML_P2P_STATUS_OK = 0
        self.NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED = 1
        self.shut_down = 0
        self.nvmlInit = lambda: None
        self.nvmlShutdown = self._shut_down
        self.nvmlDeviceGetCount = lambda: count
        self.nvmlDeviceGetHandleByIndex = lambda index: f"gpu{index}"
        self.nvmlDeviceGetName = lambda handle: f"name of {handle}"
        for unsupported in (
            "nvmlDeviceGetMemoryInfo",
            "nvmlDeviceGetPciInfo",
            "nvmlDeviceGetUUID",
            "nvmlDeviceGetTotalEccErrors",
            "nvmlDeviceGetMigMode",
            "nvmlDeviceGetP2PStatus",
            "nvmlSystemGetCudaDriverVersion_v2",
        ):
            setattr(self, unsupported, raises(self.NVML_ERROR_NOT_SUPPORTED))

    def _shut_down(self):
        self.shut_down += 1


@pytest.fixture
def fake(monkeypatch):
    module = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", module)
    monkeypatch.setattr(nvml, "_driver_installed", lambda: True)
    return module


def test_what_nvml_does_not_support_is_absent(fake):
    found = nvml.read_gpus()
    assert found == Gpus(devices=(Gpu(0, "name of gpu0"), Gpu(1, "name of gpu1")))
    assert fake.shut_down == 1


def test_every_fact_is_read(fake):
    fake.nvmlDeviceGetMemoryInfo = lambda handle: SimpleNamespace(total=100, used=7)
    fake.nvmlDeviceGetPciInfo = lambda handle: SimpleNamespace(busId="00000000:3B:00.0")
    fake.nvmlDeviceGetUUID = lambda handle: f"GPU-{handle}"
    fake.nvmlDeviceGetTotalEccErrors = lambda handle, kind, counter: 5 if (kind, counter) == (1, 0) else 0
    fake.nvmlDeviceGetCurrentClocksThrottleReasons = lambda handle: 0x1 | 0x4 | 0x40
    fake.nvmlDeviceGetComputeRunningProcesses = lambda handle: [SimpleNamespace(pid=42)]
    fake.nvmlSystemGetDriverVersion = lambda: "570.1"
    fake.nvmlSystemGetCudaDriverVersion_v2 = lambda: 12080
    found = nvml.read_gpus()
    assert found.devices[0] == Gpu(
        0,
        name="name of gpu0",
        uuid="GPU-gpu0",
        memory_total=100,
        memory_used=7,
        pids=(42,),
        ecc_uncorrected=5,
        throttle_reasons=("SwPowerCap", "HwThermalSlowdown"),
        pci_bus_id="00000000:3B:00.0",
    )
    assert (found.driver, found.cuda_driver_version) == ("570.1", (12, 8))


def test_instances_of_a_divided_gpu_are_listed(fake):
    fake.nvmlDeviceGetMigMode = lambda handle: (1, 1) if handle == "gpu0" else (0, 0)
    fake.nvmlDeviceGetMaxMigDeviceCount = lambda handle: 3
    fake.nvmlDeviceGetMigDeviceHandleByIndex = lambda handle, index: (
        f"MIG-{index}" if index < 2 else raises(fake.NVML_ERROR_NOT_SUPPORTED)()
    )
    fake.nvmlDeviceGetUUID = lambda handle: handle
    assert [gpu.mig_uuids for gpu in nvml.read_gpus().devices] == [("MIG-0", "MIG-1"), ()]


@pytest.mark.parametrize(
    ("statuses", "peer", "linked"), [((0, 0, 0), "OK", True), ((0, 1, 1), "CHIPSET_NOT_SUPPORTED", False)]
)
def test_peer_access_needs_reading_and_writing(fake, statuses, peer, linked):
    fake.nvmlDeviceGetP2PStatus = lambda a, b, capability: statuses[capability]
    found = nvml.read_gpus()
    assert found.peer_access == {(0, 1): peer}
    assert found.nvlink == (frozenset({(0, 1)}) if linked else frozenset())


@pytest.mark.parametrize("call", ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetMemoryInfo"])
def test_a_lost_gpu_is_told_from_a_missing_fact(fake, call):
    healthy = getattr(fake, call)
    lost = raises(fake.NVML_ERROR_GPU_IS_LOST, "GPU is lost")
    setattr(fake, call, lambda gpu: (lost if gpu in (1, "gpu1") else healthy)(gpu))
    first, second = nvml.read_gpus().devices
    assert (first.lost, second.index, second.lost) == (None, 1, "GPU is lost")


def test_a_gpu_of_other_users_is_left_out(fake):
    fake.nvmlDeviceGetHandleByIndex = raises(fake.NVML_ERROR_NO_PERMISSION)
    assert nvml.read_gpus() == Gpus(absent="the NVIDIA driver shows no GPU to this user")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (9, "the NVIDIA driver is installed but not loaded"),
        (4, "this user may not use the NVIDIA driver"),
        (18, "differ in version"),
        (77, "the NVIDIA driver does not answer: odd"),
    ],
)
def test_a_driver_that_does_not_start_is_a_reason(fake, error, reason):
    fake.nvmlInit = raises(error, "odd")
    absent = nvml.read_gpus().absent
    assert absent is not None
    assert reason in absent


def test_no_driver_is_told_without_importing_pynvml(monkeypatch):
    monkeypatch.setattr(nvml, "_LIBRARY", "libnvidia-ml-that-is-nowhere.so.1")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvml.read_gpus().absent == "this machine has no NVIDIA driver"


def test_a_missing_package_is_a_reason(monkeypatch):
    monkeypatch.setattr(nvml, "_driver_installed", lambda: True)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvml.read_gpus().absent == "the package nvidia-ml-py is not installed"
