from ddpdoctor.model import Level, Source
from tests.support.hosts import recorded_host
from tests.support.judging import only_finding, passed, skipped

WHEEL = {"torch": "2.13.0", "nvidia-nccl-cu12": "2.27.5"}


def host(folders=None, installed=WHEEL, **environ):
    return recorded_host(installed=installed, folders=folders or {}, environ=environ)


def old(folder):
    return {folder: ["libnccl.so", "libnccl.so.2", "libnccl.so.2.18.5"]}


def test_a_preloaded_library_of_another_version_is_a_warning():
    told = host(old("/opt/nccl/lib"), LD_PRELOAD="/opt/jemalloc.so /opt/nccl/lib/libnccl.so.2")
    finding = only_finding("DD708", Source.HOST, told)
    assert finding.level is Level.WARN
    assert finding.headline == "LD_PRELOAD leads to NCCL 2.18.5, and torch was installed with 2.27.5"
    assert finding.fix == "remove '/opt/nccl/lib/libnccl.so.2' from LD_PRELOAD"


def test_one_in_the_library_path_is_information_since_wheels_look_into_their_own_folder_first():
    finding = only_finding(
        "DD708", Source.HOST, host(old("/opt/nccl/lib"), LD_LIBRARY_PATH="/a:/opt/nccl/lib:")
    )
    assert finding.level is Level.INFO
    assert finding.headline == "LD_LIBRARY_PATH leads to NCCL 2.18.5, and torch was installed with 2.27.5"


def test_two_wheels_share_one_file():
    finding = only_finding("DD708", Source.HOST, host(installed={**WHEEL, "nvidia-nccl-cu11": "2.21.5"}))
    assert finding.level is Level.WARN
    assert (
        finding.headline
        == "nvidia-nccl-cu11 2.21.5 and nvidia-nccl-cu12 2.27.5 are installed, and share one file"
    )


def test_equal_versions_plugins_and_unknown_versions_stay_silent():
    same = {"/a": ["libnccl.so.2", "libnccl.so.2.27.5"]}
    assert passed("DD708", Source.HOST, host(same, LD_LIBRARY_PATH="/a")).text == "NCCL 2.27.5"
    passed("DD708", Source.HOST, host(same, {**WHEEL, "nvidia-nccl-cu12": "2.27.5.1"}, LD_LIBRARY_PATH="/a"))
    passed("DD708", Source.HOST, host(LD_PRELOAD="/opt/aws/libnccl-net.so:/opt/libnccl-tuner.so"))
    passed("DD708", Source.HOST, host({"/b": ["libnccl.so.2"]}, LD_LIBRARY_PATH="/b"))


def test_without_the_wheel_there_is_nothing_to_compare():
    assert "wheel" in skipped("DD708", Source.HOST, recorded_host()).reason
