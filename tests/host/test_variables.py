import pytest

from ddpdoctor.host.known_variables import KNOWN, RENAMED, misspelling_of


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("NCCL_SOCKET_IFNAM", "NCCL_SOCKET_IFNAME"),
        ("NCCL_SOCKET_IFACE", "NCCL_SOCKET_IFNAME"),
        ("NCCL_SOCKETIFNAME", "NCCL_SOCKET_IFNAME"),
        ("NCCL_DEUBG", "NCCL_DEBUG"),
        ("nccl_debug", "NCCL_DEBUG"),
        ("GLOO_SOCKET_IFNAMES", "GLOO_SOCKET_IFNAME"),
        ("CUDA_VISIBLE_DEVICE", "CUDA_VISIBLE_DEVICES"),
        ("OMP_NUM_THREAD", "OMP_NUM_THREADS"),
        ("TORCH_DISTRIBUTED_DEBG", "TORCH_DISTRIBUTED_DEBUG"),
    ],
)
def test_a_slip_is_recognised(name, meant):
    assert misspelling_of(name) == meant


@pytest.mark.parametrize(
    "name",
    [
        *("NCCL_OFI_PROTO", "NCCL_FASTRAK_IFNAME", "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "NCCL_CTRAN_ENABLE"),
        *("NCCL_NET_GDR_WRITE", "NCCL_P2P_ENABLE", "NCCL_SOCKET_IFNAME2", "NCCL_NVLS_DISABLE"),
        *(
            "TORCH_HOME",
            "TORCH_LOGS",
            "CUDA_PATH_V12_1",
            "CUDA_DEVICES",
            "OMP_WAIT_POLICY",
            "OMP_DISPLAY_ENV",
        ),
        *("RCCL_DEBUG", "CCL_DEBUG", "MY_NCCL_DEBUG", "NVIDIA_VISIBLE_DEVICES", "HOME", ""),
    ],
)
def test_names_of_plugins_and_users_are_none(name):
    assert misspelling_of(name) is None


def test_known_and_renamed_names_are_no_misspellings():
    assert not [name for name in KNOWN | RENAMED.keys() if misspelling_of(name)]
    assert set(RENAMED.values()) <= KNOWN
