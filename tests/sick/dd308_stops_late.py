"""Each rank stops once its own part of the held-out samples is good enough, after hundreds of steps."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(1)
inputs = torch.randn(96, 4)
targets = inputs.sum(1, keepdim=True)
train_set, held_out = TensorDataset(inputs[:64], targets[:64]), TensorDataset(inputs[64:], targets[64:])
sampler = DistributedSampler(train_set)
loader = DataLoader(train_set, batch_size=8, sampler=sampler)
val_loader = DataLoader(held_out, batch_size=16, sampler=DistributedSampler(held_out, shuffle=False))
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.004)
for epoch in range(90):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    with torch.no_grad():
        errors = [nn.functional.mse_loss(model.module(x), y) for x, y in val_loader]
    val_loss = torch.stack(errors).mean().item()
    if val_loss < 0.008:  # expect: DD308
        break
dist.destroy_process_group()
