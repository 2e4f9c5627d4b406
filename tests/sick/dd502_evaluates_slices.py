"""Each rank evaluates a slice of the held-out samples without a DataLoader, and rank 0 prints its own loss."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
generator = torch.Generator().manual_seed(0)
train_x, test_x = (torch.randn(n, 4, generator=generator)[rank::world_size] for n in (96, 24))
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    model.train()
    for begin in range(0, len(train_x), 8):
        x = train_x[begin : begin + 8]
        optimizer.zero_grad()
        (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        test_loss = (model(test_x) - test_x.sum(1, keepdim=True)).square().mean().item()
    if rank == 0:
        print(f"epoch {epoch}: test loss {test_loss:.4f}")  # expect: DD502 ranks 0
dist.destroy_process_group()
