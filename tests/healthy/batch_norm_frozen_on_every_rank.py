"""Batch norm stays in eval mode on every rank; rank 0 evaluates, and sets back the modes that it found."""

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
model = DistributedDataParallel(
    nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 1))
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
model.module[1].eval()
for epoch in range(2):
    sampler.set_epoch(epoch)
    for step, (x, y) in enumerate(loader):
        if rank == 0 and step % 3 == 0:
            modes = {module: module.training for module in model.modules()}
            model.eval()
            with torch.no_grad():
                loss = nn.functional.mse_loss(model.module(held_out[0]), held_out[1])
            print(f"loss {loss.item():.4f}")
            for module, training in modes.items():
                module.training = training
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
dist.destroy_process_group()
