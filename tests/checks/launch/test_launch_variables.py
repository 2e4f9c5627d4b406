import pytest

from ddpdoctor.launch import Launch
from ddpdoctor.model import Level, Source
from tests.support.hosts import recorded_host
from tests.support.judging import only_finding, passed

OPERATOR = {"RANK": 1, "WORLD_SIZE": 2, "MASTER_ADDR": "job-master-0", "MASTER_PORT": 23456}
SLURM = {
    "SLURM_PROCID": 5,
    "SLURM_NODEID": 1,
    "SLURM_NNODES": 2,
    "SLURM_NTASKS": 8,
    "SLURM_STEP_NUM_TASKS": 8,
}


def shell(launch=None, **environ):
    return recorded_host(launch=launch, environ=environ)


def test_a_left_over_rank_is_a_warning():
    finding = only_finding("DD001", Source.HOST, shell(RANK=0))
    assert finding.level is Level.WARN
    assert finding.headline == "RANK=0 is exported in this shell, which no launcher started"
    assert finding.fix.startswith("unset RANK;")


@pytest.mark.parametrize(
    ("environ", "headline"),
    [
        ({"RANK": "abc"}, "RANK='abc' is not a number"),
        ({"RANK": "\u0663"}, "RANK='\u0663' is not a number"),
        ({"RANK": "1" * 5000}, "RANK=*** is not a number"),
        ({"WORLD_SIZE": 8}, "WORLD_SIZE=8 is exported, but this launch has 4 ranks"),
        ({"WORLD_SIZE": 0}, "WORLD_SIZE=0 is below 1"),
        ({"RANK": -1}, "RANK=-1 is below 0"),
        ({"RANK": 4, "WORLD_SIZE": 4}, "RANK=4 is not below WORLD_SIZE=4"),
        ({"LOCAL_RANK": 2, "LOCAL_WORLD_SIZE": 2}, "LOCAL_RANK=2 is not below LOCAL_WORLD_SIZE=2"),
        (
            {"LOCAL_WORLD_SIZE": 2},
            "LOCAL_WORLD_SIZE=2 is exported, but this launch has 4 ranks on this node",
        ),
        ({"LOCAL_WORLD_SIZE": 4, "WORLD_SIZE": 2}, "LOCAL_WORLD_SIZE=4 is above WORLD_SIZE=2"),
        ({"MASTER_PORT": 70000}, "MASTER_PORT=70000 is not between 0 and 65535"),
        ({"MASTER_PORT": "tcp://10.0.0.1:80"}, "MASTER_PORT='tcp://10.0.0.1:80' is not a number"),
        ({**SLURM, "RANK": 3}, "RANK=3 contradicts SLURM_PROCID=5"),
        ({**SLURM, "WORLD_SIZE": 7}, "WORLD_SIZE=7 contradicts Slurm's 2 nodes"),
    ],
)
def test_what_cannot_be_is_a_failure(environ, headline):
    finding = only_finding("DD001", Source.HOST, shell(Launch(nproc=4), **environ))
    assert (finding.level, finding.headline) == (Level.FAIL, headline)


def test_the_operators_world_size_contradicts_nodes_that_were_asked_for():
    launch = Launch(nproc=4, nnodes=3, explicit=frozenset({"nnodes"}))
    finding = only_finding("DD001", Source.HOST, shell(launch, **OPERATOR))
    assert finding.headline == "WORLD_SIZE=2 is exported, but this launch has 12 ranks"


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"MASTER_ADDR": "localhost", "MASTER_PORT": 29500},
        {"RANK": "", "WORLD_SIZE": ""},
        {"TORCHELASTIC_RUN_ID": "none", "RANK": 3, "WORLD_SIZE": 64, "LOCAL_RANK": 3, "LOCAL_WORLD_SIZE": 8},
        {"OMPI_COMM_WORLD_RANK": 1, "RANK": 1, "WORLD_SIZE": 16},
        OPERATOR,
        {"SLURM_JOB_ID": 4711, "SLURM_NNODES": 2, "WORLD_SIZE": 8},
        {**SLURM, "RANK": 1, "WORLD_SIZE": 16},
        {**SLURM, "SLURM_STEP_NUM_TASKS": 1, "RANK": 0, "WORLD_SIZE": 2},
    ],
    ids=[
        "nothing",
        "rendezvous",
        "empty",
        "in torchrun",
        "in mpirun",
        "operator",
        "salloc",
        "slurm, GPUs",
        "sbatch",
    ],
)
def test_what_belongs_there_passes(environ):
    passed("DD001", Source.HOST, shell(Launch(nproc=4), **environ))


def test_a_slurm_task_passes():
    seen = passed("DD001", Source.HOST, recorded_host("slurm")).text
    assert seen == "RANK, LOCAL_RANK, WORLD_SIZE belong to a job of Slurm"


def test_a_value_is_never_shown_raw():
    finding = only_finding("DD001", Source.HOST, shell(MASTER_PORT="hf_abcdefghijklmnop0123"))
    assert "hf_" not in str(finding)
