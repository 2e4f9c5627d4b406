from ddpdoctor.launch import Launch
from ddpdoctor.model import Source
from tests.support.hosts import recorded_host
from tests.support.judging import only_finding, passed, skipped

FOUR = Launch(nproc=4, backend="nccl")


def test_more_ranks_than_visible_gpus_fail():
    host = recorded_host("8gpus", FOUR, environ={"CUDA_VISIBLE_DEVICES": "0,1"})
    finding = only_finding("DD801", Source.HOST, host)
    assert finding.headline == "4 ranks on 2 visible GPUs"
    assert finding.fix == "torchrun --nproc-per-node 2 ..."
    assert finding.evidence[0].text == "8 GPUs in this machine, CUDA_VISIBLE_DEVICES='0,1'"


def test_hidden_gpus_fail_nccl():
    host = recorded_host("8gpus", FOUR, environ={"CUDA_VISIBLE_DEVICES": ""})
    assert only_finding("DD801", Source.HOST, host).headline == "4 ranks on 0 visible GPUs"


def test_a_lost_gpu_does_not_count():
    more = recorded_host("lost_gpu", Launch(nproc=5, backend="nccl"))
    assert only_finding("DD801", Source.HOST, more).headline == "5 ranks on 3 visible GPUs"


def test_where_only_the_lost_gpu_is_missing_its_own_check_tells():
    told = skipped("DD801", Source.HOST, recorded_host("lost_gpu", FOUR))
    assert told.reason == "GPU 2 does not answer (DD805)"


def test_a_gpu_for_each_rank_passes():
    assert passed("DD801", Source.HOST, recorded_host("8gpus", FOUR)).text == "4 ranks, 8 visible GPUs"


def test_skips():
    assert (
        skipped("DD801", Source.HOST, recorded_host(launch=FOUR)).reason
        == "this machine has no NVIDIA driver"
    )
    assert "gloo" in skipped("DD801", Source.HOST, recorded_host("8gpus", Launch(nproc=64))).reason
    malformed = recorded_host("8gpus", FOUR, environ={"CUDA_VISIBLE_DEVICES": "0-3"})
    assert "DD802" in skipped("DD801", Source.HOST, malformed).reason
    shared = {"CUDA_VISIBLE_DEVICES": "0", "NCCL_MULTI_RANK_GPU_ENABLE": "1"}
    assert "share" in skipped("DD801", Source.HOST, recorded_host("8gpus", FOUR, environ=shared)).reason
