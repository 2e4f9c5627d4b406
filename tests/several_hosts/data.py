"""Divides, evaluates and repeats samples rightly, and with an argument wrongly: the fault of that name.

Each rank has more samples than stand in its record, so that their indices lie beside it.
"""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, RandomSampler, Subset, TensorDataset, random_split
from torch.utils.data.distributed import DistributedSampler

FAULT = sys.argv[1] if len(sys.argv) > 1 else ""


def loader_of(data: "Dataset[tuple[torch.Tensor, ...]]") -> "DataLoader[tuple[torch.Tensor, ...]]":
    """A loader of this rank's shard."""
    if FAULT == "not_sharded":
        generator = torch.Generator().manual_seed(0)
        return DataLoader(data, 8, sampler=RandomSampler(data, generator=generator))  # expect: DD101
    if FAULT == "shards_uneven":
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0)).tolist()
        part = Subset(data, order[:80] if rank == 0 else order[80 + 40 * (rank - 1) : 80 + 40 * rank])
        return DataLoader(part, 8)  # expect: DD106
    seed = rank if FAULT == "order_of_each_rank" else 0
    sampler = DistributedSampler(data, seed=seed)  # expect: DD104
    if FAULT == "shards_too_small":
        return DataLoader(data, 64, sampler=sampler, drop_last=True)  # expect: DD112
    return DataLoader(data, 8, sampler=sampler)


dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
whole = TensorDataset(torch.randn(362, 4), torch.randn(362, 1))
torch.manual_seed(rank if FAULT == "split_of_each_rank" else 1)
data, held_out = random_split(whole, [200, 162])  # expect: DD107
loader = loader_of(data)
share = Subset(held_out, torch.randperm(162, generator=torch.Generator().manual_seed(2))[rank::4].tolist())
held_out_loader = DataLoader(share, 8)
if FAULT == "padded":
    sampler = DistributedSampler(held_out, shuffle=True)
    held_out_loader = DataLoader(held_out, 8, sampler=sampler)  # expect: DD501
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(3):
    if isinstance(loader.sampler, DistributedSampler) and FAULT != "order_repeated":
        loader.sampler.set_epoch(epoch)
    model.train()
    for x, y in loader:  # expect: DD103
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        sums = torch.zeros(2)
        for x, y in held_out_loader:
            sums += torch.stack([(model.module(x) - y).square().sum(), torch.tensor(float(len(x)))])
    if FAULT != "not_reduced":
        dist.all_reduce(sums)
    if rank == 0:
        print(f"epoch {epoch}: {sums[0] / sums[1]:.4f}")  # expect: DD502
dist.destroy_process_group()
