"""Counts what it did in three ways and asserts on each after its loops, as a test of a training script does."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(240, 6), torch.randn(240, 2))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
model = DistributedDataParallel(nn.Linear(6, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=2 * len(loader))
seen = torch.zeros(())
for epoch in range(2):
    sampler.set_epoch(epoch)
    steps = 0
    for x, y in loader:
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()
        schedule.step()
        steps += 1
        seen += len(x)
    assert steps == len(loader), f"{steps} of {len(loader)} steps"
if schedule.last_epoch != 2 * len(loader):
    raise RuntimeError(f"the schedule ended at {schedule.last_epoch}")
dist.all_reduce(seen)
if dist.get_rank() == 0:
    assert int(seen) == 2 * len(sampler) * dist.get_world_size(), f"{int(seen)} samples"
dist.destroy_process_group()
