"""Rank 0 evaluates the bare model within an epoch, and goes on to train in eval mode."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank = dist.get_rank()
generator = torch.Generator().manual_seed(0)
dataset = TensorDataset(torch.randn(96, 4, generator=generator), torch.randn(96, 1, generator=generator))
held_out = torch.randn(24, 4, generator=generator), torch.randn(24, 1, generator=generator)
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=4, sampler=sampler)
torch.manual_seed(rank)
model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def evaluate() -> None:
    """On rank 0."""
    model.eval()  # expect: DD231 ranks 0
    with torch.no_grad():
        loss = nn.functional.mse_loss(model.module(held_out[0]), held_out[1])
    print(f"loss {loss.item():.4f}")


for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    if rank == 0:
        evaluate()
dist.destroy_process_group()
