"""Rank 0 alone evaluates the bare model on all held-out samples, decides to stop, and tells the others."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
data = TensorDataset(torch.linspace(0, 1, 48).reshape(48, 1))
held_out = TensorDataset(torch.linspace(1, 2, 12).reshape(12, 1))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
model = DistributedDataParallel(nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)


def evaluate():
    model.eval()
    with torch.no_grad():
        losses = [(model.module(x) - x).square().mean() for (x,) in DataLoader(held_out, batch_size=4)]
    model.train()
    return torch.stack(losses).mean().item()


best = evaluate() if dist.get_rank() == 0 else None
for epoch in range(4):
    sampler.set_epoch(epoch)
    for (x,) in loader:
        optimizer.zero_grad()
        (model(x) - x).square().mean().backward()
        optimizer.step()
    stop = torch.zeros(1)
    if dist.get_rank() == 0:
        loss = evaluate()
        print(f"epoch {epoch}: held-out loss {loss:.4f}")
        stop += float(loss > best or epoch == 2)
        best = min(best, loss)
        torch.save({"model": model.module.state_dict(), "loss": loss}, "best.pt")
    dist.broadcast(stop, src=0)
    if stop.item():
        break
dist.destroy_process_group()
