"""Rank 0 alone has an optimizer: it gets the gradients of all ranks and sends them the new weights."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
rank, size = dist.get_rank(), dist.get_world_size()
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01) if rank == 0 else None
dataset = TensorDataset(torch.randn(44 * size, 4), torch.randn(44 * size, 1))
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=4, sampler=sampler)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for inputs, targets in loader:
        model.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        for parameter in model.parameters():
            dist.reduce(parameter.grad, dst=0)
        if optimizer is not None:
            for parameter in model.parameters():
                parameter.grad /= size
            optimizer.step()
        for parameter in model.parameters():
            dist.broadcast(parameter.data, src=0)
dist.barrier()
dist.destroy_process_group()
