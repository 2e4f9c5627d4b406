"""Training on shards of different lengths under Join, which lets the ranks that run out go along."""

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from ddpdoctor.group.context import Context
from ddpdoctor.group.measure.weights import backward, batch, build_model, first_difference, wrap

SECONDS = 15.0
BATCH_SIZE = 4
BATCHES = 3


def measure(context: Context) -> dict[str, Any]:
    """``batches`` is what a loop as a script writes it would run; ``ran`` what this one ran under Join."""
    lengths = [len(shard(rank, context.world_size)) for rank in range(context.world_size)]
    planned = -(-lengths[context.rank] // BATCH_SIZE)
    value: dict[str, Any] = {"samples": sum(lengths), "batch_size": BATCH_SIZE, "batches": planned}
    if not _all_reduce_counts(context):
        return {**value, "ran": None, "difference": None}
    model = build_model(0, context.device)
    ran = _train(context, wrap(context, model), planned)
    return {**value, "ran": ran, "difference": first_difference(context, "after Join", model)}


def shard(rank: int, world_size: int) -> range:
    """Every world_size-th sample; one sample over whole batches gives rank 0 one batch more."""
    return range(rank, BATCH_SIZE * BATCHES * world_size + 1, world_size)


def _all_reduce_counts(context: Context) -> bool:
    """Whether all_reduce can count the ranks on every rank; Join counts with it and never ends where it cannot."""
    counted = torch.ones(1, device=context.device)
    context.step("all_reduce sum float32 4 B")
    dist.all_reduce(counted)
    context.publish(f"uneven/{context.rank}", counted.item() == context.world_size)
    return all(context.read_all("uneven"))


def _train(context: Context, ddp: DistributedDataParallel, batches: int) -> int:
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    ran = 0
    context.step("DDP training under Join")
    with Join([ddp]):
        for number in range(batches):
            optimizer.zero_grad()
            backward(ddp, *batch(1000 * context.rank + number, BATCH_SIZE, context.device))
            optimizer.step()
            ran += 1
    return ran
