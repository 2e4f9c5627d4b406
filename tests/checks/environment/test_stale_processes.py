import pytest

from ddpdoctor.group.group_record import GroupRecord, Stage
from ddpdoctor.launch import Launch
from ddpdoctor.model import Level, Source
from tests.support.hosts import recorded_host
from tests.support.judging import only_finding, passed, skipped

RUN = {"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
INIT = {"pid": 1, "command": ["/sbin/init"]}


def worker(pid, parent, rank=0, **run):
    environ = {**RUN, **run, "RANK": str(rank)}
    return {
        "pid": pid,
        "parent": parent,
        "user": "ana",
        "age": 3600.0,
        "command": ["python", "train.py"],
        "environ": environ,
    }


def test_workers_adopted_by_init_are_stale():
    host = recorded_host(processes=[INIT, worker(70, 1), worker(71, 1, rank=1), worker(72, 71, rank=1)])
    finding = only_finding("DD010", Source.HOST, host)
    assert finding.level is Level.WARN
    assert finding.headline == "3 processes of a run whose launcher is gone are still alive"
    assert finding.evidence[1].text == "pid 71 of ana, rank 1, started 60 min ago: python train.py"
    assert finding.fix.startswith("kill 70 71 72 ")


def test_holding_a_gpu_is_a_failure():
    gpus = {"devices": [{"index": 0, "pids": [70]}]}
    finding = only_finding("DD010", Source.HOST, recorded_host(processes=[INIT, worker(70, 1)], gpus=gpus))
    assert (finding.level, finding.headline) == (
        Level.FAIL,
        "1 process of a run whose launcher is gone is still alive on GPU 0",
    )


def test_one_that_only_holds_the_master_port_is_left_to_that_check():
    left = {"processes": [INIT, worker(70, 1)], "listeners": [{"port": 29500, "pid": 70}]}
    passed("DD010", Source.HOST, recorded_host(launch=Launch(explicit=frozenset({"master_port"})), **left))
    only_finding(
        "DD010", Source.HOST, recorded_host(**left)
    )  # of a launch that takes a free port, it judges none


@pytest.mark.parametrize(
    "processes",
    [
        [INIT, {"pid": 60, "parent": 1, "command": ["python", "torchrun"]}, worker(70, 60), worker(71, 70)],
        [{"pid": 1, "command": ["/usr/bin/python3", "/usr/bin/torchrun"]}, worker(70, 1)],
        [INIT, {"pid": 60, "parent": 1, "command": ["torchrun"]}, worker(70, 60), worker(80, 1)],
        [INIT, {"pid": 90, "parent": 1, "command": ["python"], "environ": {"RANK": "0", "WORLD_SIZE": "2"}}],
        [INIT, {"pid": 90, "parent": 1, "command": ["python", "/usr/bin/torchrun"]}],
        [INIT, worker(70, 0)],
    ],
    ids=[
        "a live launcher",
        "the launcher is process 1 of a container",
        "a helper of a live run that made itself a daemon",
        "started by hand with nohup",
        "a launcher with nohup",
        "started from outside of the container",
    ],
)
def test_what_lives_is_not_stale(processes):
    passed("DD010", Source.HOST, recorded_host(processes=processes))


def test_a_live_group_that_leaves_a_process_behind():
    record = GroupRecord(Launch(), left_behind=("process 77: agent --daemon",))
    finding = only_finding("DD010", Source.GROUP, record)
    assert finding.headline == "the live group left 1 process behind"
    assert finding.evidence[0].text == "process 77: agent --daemon"


def test_a_live_group_that_leaves_nothing_or_never_ended():
    assert passed("DD010", Source.GROUP, GroupRecord(Launch())).text == "the live group left no process"
    broken = GroupRecord(Launch(), stage=Stage.MEASURE, broken="rank 1 died in weights")
    assert skipped("DD010", Source.GROUP, broken).reason == "rank 1 died in weights"
