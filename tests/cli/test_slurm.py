"""What srun says of the hosts of a step."""

from dataclasses import replace

import pytest

from ddpdoctor.cli.errors import UsageError
from ddpdoctor.cli.options import CheckOptions
from ddpdoctor.cli.slurm import first_host, with_step

STEP = {
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NODELIST": "node[03-04]",
}


def test_a_step_of_several_hosts() -> None:
    options = with_step(CheckOptions(), STEP)
    assert (options.nnodes, options.node_rank, options.master_addr) == (2, 1, "node03")


@pytest.mark.parametrize("gone", ["SLURM_STEP_ID", "SLURM_NODEID", "SLURM_STEP_NUM_NODES"])
def test_outside_of_a_step_nothing_is_taken_from_slurm(gone: str) -> None:
    environ = {name: value for name, value in STEP.items() if name != gone}
    assert with_step(CheckOptions(), environ) == CheckOptions()


@pytest.mark.parametrize(
    "chosen",
    [
        {"nnodes": 2, "master_addr": "10.0.0.1"},
        {"master_addr": "127.0.0.1"},
        {"standalone": True},
        {"rdzv_endpoint": "node03:29400"},
    ],
)
def test_options_win(chosen: dict[str, object]) -> None:
    options = replace(CheckOptions(), **chosen)  # type: ignore[arg-type]
    assert with_step(options, STEP) == options


def test_several_tasks_on_a_host_are_refused() -> None:
    with pytest.raises(
        UsageError, match="16 times on 2 nodes; it has to run once on each: srun --nodes 2 --ntasks"
    ):
        with_step(CheckOptions(), {**STEP, "SLURM_STEP_NUM_TASKS": "16"})


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
