"""Each rank draws samples in eval mode from noise of its own; rank 0 then tells the training loss, and saves."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
held_out = torch.randn(24, 4, generator=torch.Generator().manual_seed(7))[rank::world_size]
model = DistributedDataParallel(nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
best = float("inf")
for epoch in range(3):
    model.train()
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        model.module(torch.randn(2, 4))
    if rank == 0:
        print(f"epoch {epoch}: loss {loss.item():.4f}")
        with tempfile.TemporaryDirectory() as folder:
            torch.save(model.module.state_dict(), os.path.join(folder, "last.pt"))
    dist.barrier()
    model.train()
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        total = model.module(held_out).square().sum()
    dist.all_reduce(total)
    if rank == 0 and total < best:
        best = total
        print(f"epoch {epoch}: test loss {total.item():.4f}")
dist.destroy_process_group()
