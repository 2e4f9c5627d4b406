"""What launchers say of the hosts on which they start the command."""

from dataclasses import replace
from pathlib import Path

import pytest

from ddpdoctor.cli.errors import UsageError
from ddpdoctor.cli.launchers import first_host, with_launcher
from ddpdoctor.cli.option import NodeCount
from ddpdoctor.cli.options import CheckOptions
from ddpdoctor.cli.request import request_of

STEP = {
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NODELIST": "node[03-04]",
}


def test_a_step_of_several_hosts() -> None:
    options = with_launcher(CheckOptions(), STEP)
    assert (options.nnodes, options.node_rank, options.master_addr) == (2, 1, "node03")


@pytest.mark.parametrize("gone", ["SLURM_STEP_ID", "SLURM_NODEID", "SLURM_STEP_NUM_NODES"])
def test_outside_of_a_step_nothing_is_taken_from_slurm(gone: str) -> None:
    environ = {name: value for name, value in STEP.items() if name != gone}
    assert with_launcher(CheckOptions(), environ) == CheckOptions()


@pytest.mark.parametrize(
    "chosen",
    [
        {"nodes": NodeCount(2, 2), "master_addr": "10.0.0.1"},
        {"standalone": True},
        {"rdzv_endpoint": "node03:29400"},
    ],
)
def test_options_win(chosen: dict[str, object]) -> None:
    options = replace(CheckOptions(), **chosen)  # type: ignore[arg-type]
    assert with_launcher(options, STEP) == options


def test_several_tasks_on_a_host_are_refused() -> None:
    with pytest.raises(
        UsageError, match="16 times on 2 nodes; it has to run once on each: srun --nodes 2 --ntasks"
    ):
        with_launcher(CheckOptions(), {**STEP, "SLURM_STEP_NUM_TASKS": "16"})


def test_the_address_of_an_option_wins() -> None:
    options = with_launcher(replace(CheckOptions(), master_addr="ib-node03"), STEP)
    assert (options.nnodes, options.node_rank, options.master_addr) == (2, 1, "ib-node03")


MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
    "OMPI_MCA_orte_hnp_uri": "1171193856.0;tcp://10.213.157.1,10.0.0.1:46217",
}


def test_once_on_each_host_by_mpirun() -> None:
    options = with_launcher(CheckOptions(), MPIRUN)
    assert (options.nnodes, options.node_rank, options.master_addr) == (2, 1, "10.213.157.1")
    elsewhere = with_launcher(CheckOptions(), {**MPIRUN, "MASTER_ADDR": "node0"})
    assert elsewhere.master_addr == "node0"


def test_several_ranks_of_mpirun_on_a_host_are_refused() -> None:
    environ = {**MPIRUN, "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}
    with pytest.raises(
        UsageError, match=r"mpirun starts this command 8 times on 2 nodes; .*: mpirun -N 1 ddp"
    ):
        with_launcher(CheckOptions(), environ)


def test_a_rank_of_mpirun_on_one_host_is_a_job_on_one_host() -> None:
    environ = {**MPIRUN, "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    assert with_launcher(CheckOptions(), environ) == CheckOptions()


POD = {
    "KUBERNETES_SERVICE_HOST": "10.96.0.1",
    "RANK": "1",
    "WORLD_SIZE": "2",
    "MASTER_ADDR": "job-master-0",
    "MASTER_PORT": "23456",
}


def test_a_pod_of_an_operator() -> None:
    options = with_launcher(CheckOptions(), POD)
    assert (options.nnodes, options.node_rank, options.master_addr) == (2, 1, "job-master-0")


@pytest.mark.parametrize("gone", ["KUBERNETES_SERVICE_HOST", "RANK", "WORLD_SIZE", "MASTER_ADDR"])
def test_exported_variables_alone_are_no_hosts(gone: str) -> None:
    environ = {name: value for name, value in POD.items() if name != gone}
    assert with_launcher(CheckOptions(), environ) == CheckOptions()


def test_a_rank_that_torchrun_started_in_a_pod_is_alone() -> None:
    assert with_launcher(CheckOptions(), {**POD, "LOCAL_RANK": "0"}) == CheckOptions()


DEFAULTS = {
    "PET_NNODES": "2",
    "PET_NODE_RANK": "1",
    "PET_NPROC_PER_NODE": "4",
    "PET_MASTER_ADDR": "job-node-0-0.job",
    "PET_MASTER_PORT": "29400",
}


def test_defaults_of_torchrun_are_defaults_here() -> None:
    options = with_launcher(CheckOptions(), {**POD, **DEFAULTS})
    assert (options.nnodes, options.node_rank, options.nproc) == (2, 1, 4)
    assert (options.master_addr, options.master_port) == ("job-node-0-0.job", 29400)
    chosen = with_launcher(replace(CheckOptions(), nproc=2), {**DEFAULTS, "PET_NPROC_PER_NODE": "auto"})
    assert chosen.nproc == 2
    by_c10d = {"PET_NNODES": "2:2", "PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "job-worker-0:23456"}
    options = with_launcher(CheckOptions(), by_c10d)
    assert (options.nnodes, options.node_rank, options.rdzv_endpoint) == (2, None, "job-worker-0:23456")


def test_a_changing_number_of_hosts() -> None:
    elastic = {**DEFAULTS, "PET_NNODES": "1:4", "PET_MAX_RESTARTS": "3", "PET_RDZV_CONF": "join_timeout=60"}
    options = with_launcher(CheckOptions(), elastic)
    assert (options.nodes, options.max_restarts) == (NodeCount(1, 4), 3)
    assert options.rendezvous == (("conf", "join_timeout=60"),)
    with pytest.raises(UsageError, match="PET_NNODES=4:1 is not a number of hosts"):
        with_launcher(CheckOptions(), {**DEFAULTS, "PET_NNODES": "4:1"})


def test_a_rehearsal_of_many_ranks_is_on_this_host_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in DEFAULTS.items():
        monkeypatch.setenv(name, value)
    Path("train.py").touch()
    options = CheckOptions(words=["train.py"], rehearse=True, world_size=64)
    assert request_of(options).host.launch.nnodes == 1
    assert request_of(CheckOptions(words=["train.py"])).host.launch.nnodes == 2


@pytest.mark.parametrize(
    ("names", "first"),
    [
        ("node3", "node3"),
        ("node3,node5", "node3"),
        ("node[03-06,9],gpu1", "node03"),
        ("rack1-[7,9]-ib", "rack1-7-ib"),
        ("", None),
    ],
)
def test_the_first_host_of_a_list(names: str, first: str | None) -> None:
    assert first_host(names) == first
