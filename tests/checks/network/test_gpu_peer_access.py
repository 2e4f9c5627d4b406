from ddpdoctor.launch import Launch
from ddpdoctor.model import Confidence, Level, Source
from tests.support.hosts import recorded_host
from tests.support.judging import only_finding, passed, skipped


def gpus(status, nvlink=False, name="NVIDIA L40S", **first):
    devices = [
        {"index": 0, "name": name, "pci_bus_id": "00000000:01:00.0", **first},
        {"index": 1, "name": name, "pci_bus_id": "00000000:41:00.0"},
    ]
    return {"devices": devices, "peer_access": [{"a": 0, "b": 1, "status": status, "nvlink": nvlink}]}


def nccl_host(name="plain", **changes):
    return recorded_host(name, Launch(backend="nccl"), **changes)


TRANSLATES = {"/sys/bus/pci/devices/0000:41:00.0/iommu_group/type": "DMA-FQ\n"}


def test_an_iommu_that_translates_peer_access_over_pci_is_a_warning():
    finding = only_finding("DD706", Source.HOST, nccl_host(gpus=gpus("OK"), files=TRANSLATES))
    assert finding.level is Level.WARN
    assert finding.confidence is Confidence.LIKELY
    assert (
        finding.headline
        == "the IOMMU translates the addresses of GPU 1, which has peer access over PCI Express"
    )
    assert finding.evidence[0].text == "GPU 1 (00000000:41:00.0): iommu_group/type is DMA-FQ"


def test_an_iommu_that_passes_addresses_through_is_fine():
    files = dict.fromkeys(TRANSLATES, "identity\n")
    told = passed("DD706", Source.HOST, nccl_host(gpus=gpus("OK"), files=files))
    assert told.text == "2 GPUs reach each other's memory over PCI Express"


def test_an_iommu_does_not_matter_over_nvlink():
    host = nccl_host(gpus=gpus("OK", nvlink=True), files=TRANSLATES)
    assert passed("DD706", Source.HOST, host).text == "2 GPUs reach each other's memory over NVLink"


def test_consumer_cards_are_information():
    finding = only_finding("DD706", Source.HOST, nccl_host("consumer"))
    assert finding.level is Level.INFO
    assert finding.headline == "GPUs 0 and 1 cannot read each other's memory"
    assert "CHIPSET_NOT_SUPPORTED: the chipset does not allow it" in finding.why


def test_gpus_that_come_with_nvlink_should_reach_each_other():
    board = gpus("CHIPSET_NOT_SUPPORTED", name="NVIDIA A100-SXM4-80GB")
    assert only_finding("DD706", Source.HOST, nccl_host(gpus=board)).level is Level.WARN


def test_gpus_divided_into_instances_do_not_and_need_not():
    board = gpus("NOT_SUPPORTED", name="NVIDIA A100-SXM4-80GB", mig_uuids=["MIG-1"])
    assert skipped("DD706", Source.HOST, nccl_host(gpus=board)).reason.startswith("1 GPU visible")


def test_only_visible_gpus_count():
    host = nccl_host(gpus=gpus("OK"), files=TRANSLATES, environ={"CUDA_VISIBLE_DEVICES": "0"})
    assert skipped("DD706", Source.HOST, host).reason == "1 GPU visible, 2 ranks on this node"


def test_gloo_goes_through_host_memory():
    assert "gloo" in skipped("DD706", Source.HOST, recorded_host(gpus=gpus("OK"), files=TRANSLATES)).reason


def test_skips():
    assert skipped("DD706", Source.HOST, nccl_host()).reason == "this machine has no NVIDIA driver"
    host = nccl_host(gpus=gpus("OK"), files=TRANSLATES, environ={"NCCL_P2P_DISABLE": "1"})
    assert "NCCL_P2P_DISABLE" in skipped("DD706", Source.HOST, host).reason
    unknown = {**gpus("OK"), "peer_access": []}
    assert skipped("DD706", Source.HOST, nccl_host(gpus=unknown)).reason == "the driver does not report it"
