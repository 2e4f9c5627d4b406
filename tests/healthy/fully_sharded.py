"""FSDP in its three forms: each rank holds and updates another part of the weights."""
# needs torch 2.6: FSDP2 has another name before

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3))


def shard_layers() -> nn.Module:
    model = make_model()
    fully_shard(model[0])
    fully_shard(model[2])
    fully_shard(model)
    return model


def train(model: nn.Module) -> None:
    generator = torch.Generator().manual_seed(0)
    data = TensorDataset(
        torch.randn(48, 6, generator=generator), torch.randint(0, 3, (48,), generator=generator)
    )
    sampler = DistributedSampler(data)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(data, 4, sampler=sampler):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()


dist.init_process_group("gloo")
for keep_names in (False, True):
    train(FullyShardedDataParallel(make_model(), device_id=torch.device("cpu"), use_orig_params=keep_names))
train(shard_layers())
dist.destroy_process_group()
