"""The measurements in live groups of forked ranks: healthy at every small size, and with one rank made sick."""

import time
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from ddpdoctor.group.measure import (
    checkpoint,
    collectives,
    sampler,
    transport,
    uneven,
    variables,
    weights,
)
from ddpdoctor.group.trials import _tiles
from ddpdoctor.launch import Launch
from ddpdoctor.model import Finding, Source
from tests.support.group import run_group
from tests.support.judging import ask, only_finding, passed, skipped

pytestmark = pytest.mark.slow

ALL = (variables, collectives, transport, weights, uneven, sampler, checkpoint)
CODES = ("DD001", "DD014", "DD103", "DD106", "DD206", "DD228", "DD313", "DD401", "DD605")


def findings(group) -> list[str]:
    said = {code: ask(code, Source.GROUP, group) for code in CODES}
    return [code for code, one in said.items() if isinstance(one, list) and isinstance(one[0], Finding)]


@pytest.mark.parametrize("nproc", [1, 2, 4])
def test_a_healthy_group_has_no_finding(nproc, tmp_path):
    group = run_group(nproc, *ALL, launch=launch(nproc, tmp_path))
    assert findings(group) == []
    assert "exact answer" in passed("DD313", Source.GROUP, group).text
    assert list(tmp_path.iterdir()) == []


def launch(nproc, folder):
    return Launch(nproc=nproc, checkpoint_dir=str(folder))


def only_on(sick: int, fault: Callable[[], None]) -> Callable[[int], None]:
    return lambda rank: fault() if rank == sick else None


def corrupt_all_reduce() -> None:
    right = dist.all_reduce

    def all_reduce(tensor, *args, **kwargs):
        right(tensor, *args, **kwargs)
        tensor.view(-1)[tensor.numel() // 2] += 1

    dist.all_reduce = all_reduce


def test_a_corrupted_all_reduce_is_found_once_and_nothing_hangs():
    group = run_group(3, *ALL, fault=only_on(1, corrupt_all_reduce))
    finding = only_finding("DD313", Source.GROUP, group)
    assert finding.headline.startswith("all_reduce sum of 4.0 KiB float32 gave rank 1 a wrong answer")
    assert finding.ranks == (1,)
    assert findings(group) == ["DD313"]


def test_replicas_that_ddp_does_not_make_equal():
    def no_weight_sync(rank: int) -> None:
        torch.nn.parallel.distributed._sync_module_states = lambda *args, **kwargs: None

    group = run_group(3, *ALL, fault=no_weight_sync)
    finding = only_finding("DD206", Source.GROUP, group)
    assert finding.headline.startswith(
        "the weights of ranks 1-2 differ from rank 0's after the wrap: 0.weight[0]"
    )
    assert findings(group) == ["DD206"]


def test_a_rank_whose_weights_drift():
    def drift() -> None:
        right = torch.optim.SGD.step

        def step(self, *args, **kwargs):
            right(self, *args, **kwargs)
            with torch.no_grad():
                self.param_groups[0]["params"][-1].add_(1e-6)

        torch.optim.SGD.step = step

    group = run_group(2, weights, fault=only_on(1, drift))
    finding = only_finding("DD206", Source.GROUP, group)
    assert "differ from rank 0's after 3 optimizer steps: 3.bias[0]" in finding.headline


def test_gradients_that_are_summed_and_not_averaged():
    def sum_only(rank: int) -> None:
        right = torch.nn.parallel.DistributedDataParallel.__init__

        def hook(state, bucket):
            work = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
            return work.then(lambda done: done.value()[0])

        def init(self, *args, **kwargs):
            right(self, *args, **kwargs)
            self.register_comm_hook(None, hook)

        torch.nn.parallel.DistributedDataParallel.__init__ = init

    group = run_group(2, weights, fault=sum_only)
    assert "DDP's gradient of 0.weight" in only_finding("DD228", Source.GROUP, group).headline
    assert findings(group) == ["DD228"]


def test_a_sampler_that_ignores_set_epoch():
    def ignore(rank: int) -> None:
        torch.utils.data.DistributedSampler.set_epoch = lambda self, epoch: None

    group = run_group(2, sampler, fault=ignore)
    assert findings(group) == ["DD103"]


def test_a_slow_rank_is_named():
    def slow() -> None:
        right = dist.batch_isend_irecv

        def late(both):
            time.sleep(0.25)
            return right(both)

        dist.batch_isend_irecv = late

    group = run_group(4, collectives, transport, fault=only_on(2, slow))
    assert only_finding("DD605", Source.GROUP, group).ranks == (2,)


FUNCTIONS = (
    "all_reduce",
    "broadcast",
    "all_gather",
    "reduce_scatter",
    "all_to_all_single",
    "gather",
    "scatter",
)


def test_a_rank_that_is_late_to_every_collective_is_named():
    def late() -> None:
        for name in (*FUNCTIONS, "barrier"):
            right = getattr(dist, name)

            def slow(*args, right=right, **kwargs):
                time.sleep(0.12)
                return right(*args, **kwargs)

            setattr(dist, name, slow)

    finding = only_finding(
        "DD605", Source.GROUP, run_group(2, collectives, transport, fault=only_on(1, late))
    )
    assert finding.ranks == (1,)
    assert "to start each of 10 collectives" in finding.headline


def test_join_that_leaves_replicas_different():
    def no_final_weights(rank: int) -> None:
        torch.nn.parallel.DistributedDataParallel._sync_final_model = lambda *args, **kwargs: None

    group = run_group(2, weights, uneven, fault=no_final_weights)
    assert "after training under Join" in only_finding("DD106", Source.GROUP, group).headline


def test_a_rank_that_sees_a_checkpoint_late():
    def stale() -> None:
        checkpoint._state = lambda path: ("part", 100)

    group = run_group(2, checkpoint, fault=only_on(1, stale))
    finding = only_finding("DD401", Source.GROUP, group)
    assert finding.headline.startswith("rank 1 found 100 B of a checkpoint of 768 KiB")


def test_a_folder_that_is_not_there_is_left_to_the_disk_check(tmp_path):
    group = run_group(2, checkpoint, launch=launch(2, tmp_path / "absent"))
    assert "No such file or directory" in skipped("DD401", Source.GROUP, group).reason


class WaitForAll:
    """Keeps rank 0, which holds the store, until the others are done."""

    @staticmethod
    def measure(context):
        dist.distributed_c10d.barrier()
        return {}


def test_a_barrier_that_lets_ranks_through_is_found():
    def late_and_open(rank: int) -> None:
        dist.barrier = lambda **how: None
        collectives._cases = lambda world_size: []
        if rank == 1:
            time.sleep(1.5)

    group = run_group(2, collectives, WaitForAll, fault=late_and_open)
    assert "barrier let rank 0 pass" in only_finding("DD313", Source.GROUP, group).headline


def test_a_backend_that_lacks_an_operation_is_recorded():
    def lacking(rank: int) -> None:
        def refuse(*args, **kwargs):
            raise RuntimeError("Backend gloo does not support reduce_scatter")

        dist.reduce_scatter = refuse

    said = passed("DD313", Source.GROUP, run_group(2, collectives, fault=lacking))
    assert "does not support reduce_scatter" in said.evidence[0].text


@pytest.mark.parametrize("world_size", [1, 8, 100, 1000])
def test_the_patterns_sums_are_exact_in_bfloat16(world_size):
    tiles = _tiles(world_size)
    total = tiles.sum(0)
    assert int(total.max()) <= 256
    assert bool((total.bfloat16().long() == total).all())
    assert bool((tiles.amax(1) > 0).all()), "every rank takes part in some sum"
