"""The shards that DistributedSampler gives each rank, in two epochs."""

from typing import Any

import torch
from torch.utils.data import DistributedSampler, TensorDataset

from ddpdoctor.group.context import Context

SECONDS = 10.0
SAMPLES_PER_RANK = 16


def measure(context: Context) -> dict[str, Any]:
    """The indices of a first pass, of a second without ``set_epoch``, and of epoch 1."""
    count = SAMPLES_PER_RANK * context.world_size + 1
    dataset = TensorDataset(torch.arange(count))
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(
        dataset, num_replicas=context.world_size, rank=context.rank
    )
    first, repeated = list(sampler), list(sampler)
    sampler.set_epoch(1)
    return {"samples": count, "epoch_0": first, "again": repeated, "epoch_1": list(sampler)}
