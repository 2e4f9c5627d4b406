import pytest

from ddpdoctor.launch import Launch
from ddpdoctor.model import Level, Source
from tests.support.hosts import recorded_host
from tests.support.judging import only_finding, passed

CPU = {"/t/version.py": "__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n"}
CUDA = {"/t/version.py": "__version__ = '2.13.0+cu130'\ncuda: Optional[str] = '13.0'\n"}


def host(launch=None, files=CPU, **environ):
    return recorded_host(launch=launch, packages={"torch": "/t"}, files=files, environ=environ)


def test_a_misspelt_name_is_told_the_right_one():
    finding = only_finding("DD009", Source.HOST, host(NCCL_SOCKET_IFNAM="eth0"))
    assert finding.level is Level.WARN
    assert finding.headline == "unknown variable NCCL_SOCKET_IFNAM is set; did you mean NCCL_SOCKET_IFNAME?"
    assert finding.evidence[0].text == "NCCL_SOCKET_IFNAM='eth0'"


def test_detail_crashes_this_build_and_slows_down_others():
    crash = only_finding("DD009", Source.HOST, host(TORCH_DISTRIBUTED_DEBUG="detail"))
    assert crash.level is Level.FAIL
    assert crash.headline == "TORCH_DISTRIBUTED_DEBUG=DETAIL crashes torch 2.13.0+cpu in DDP's constructor"
    slow = only_finding("DD009", Source.HOST, host(files=CUDA, TORCH_DISTRIBUTED_DEBUG="DETAIL"))
    assert (slow.level, slow.headline) == (Level.WARN, "TORCH_DISTRIBUTED_DEBUG=DETAIL is set")


def test_a_level_that_torch_rejects():
    finding = only_finding("DD009", Source.HOST, host(TORCH_DISTRIBUTED_DEBUG="verbose"))
    assert (finding.level, finding.headline) == (
        Level.FAIL,
        "TORCH_DISTRIBUTED_DEBUG='verbose' is not a level",
    )


@pytest.mark.parametrize(
    ("backend", "environ", "level", "headline"),
    [
        ("gloo", {"TORCH_DISTRIBUTED_DEBUG": "INFO"}, Level.INFO, "TORCH_DISTRIBUTED_DEBUG=INFO is set"),
        ("nccl", {"CUDA_LAUNCH_BLOCKING": "1"}, Level.WARN, "CUDA_LAUNCH_BLOCKING=1 is set"),
        ("gloo", {"CUDA_LAUNCH_BLOCKING": "1"}, Level.INFO, "CUDA_LAUNCH_BLOCKING=1 is set"),
        ("nccl", {"NCCL_P2P_DISABLE": "1"}, Level.INFO, "NCCL_P2P_DISABLE=1 is set"),
        ("nccl", {"NCCL_BLOCKING_WAIT": "1"}, Level.WARN, "NCCL_BLOCKING_WAIT=1 is set"),
        (
            "nccl",
            {"NCCL_ASYNC_ERROR_HANDLING": "1"},
            Level.INFO,
            "NCCL_ASYNC_ERROR_HANDLING is set by its old name; it is called TORCH_NCCL_ASYNC_ERROR_HANDLING now",
        ),
        (
            "nccl",
            {"NCCL_DESYNC_DEBUG": "1", "TORCH_NCCL_DESYNC_DEBUG": "0"},
            Level.WARN,
            "NCCL_DESYNC_DEBUG='1' contradicts TORCH_NCCL_DESYNC_DEBUG='0'",
        ),
        (
            "nccl",
            {"NCCL_MIN_NCHANNELS": "8", "NCCL_MAX_NCHANNELS": "4"},
            Level.WARN,
            "NCCL_MIN_NCHANNELS='8' contradicts NCCL_MAX_NCHANNELS='4'",
        ),
        (
            "nccl",
            {"TORCH_NCCL_DUMP_ON_TIMEOUT": "1", "TORCH_FR_BUFFER_SIZE": "0"},
            Level.WARN,
            "TORCH_NCCL_DUMP_ON_TIMEOUT='1' contradicts TORCH_FR_BUFFER_SIZE='0'",
        ),
    ],
)
def test_levels(backend, environ, level, headline):
    finding = only_finding("DD009", Source.HOST, host(Launch(backend=backend), **environ))
    assert (finding.level, finding.headline) == (level, headline)


def test_usual_settings_pass():
    environ = {
        "NCCL_DEBUG": "INFO",
        "NCCL_SOCKET_IFNAME": "eth0",
        "NCCL_P2P_DISABLE": "0",
        "NCCL_OFI_PROTOCOL": "RDMA",
        "NCCL_VERSION": "2.29.3-1",
        "CUDA_HOME": "/usr/local/cuda",
        "TORCH_HOME": "/cache",
        "MY_NCCL_DEBUGG": "1",
        "TORCH_DISTRIBUTED_DEBUG": "OFF",
    }
    assert passed("DD009", Source.HOST, host(**environ)).text == "6 known variables are set, none harmful"


def test_a_secret_in_a_misspelt_variable_is_masked():
    assert "hf_" not in str(only_finding("DD009", Source.HOST, host(NCCL_DEUBG="hf_abcdefghijklmnop0123")))
