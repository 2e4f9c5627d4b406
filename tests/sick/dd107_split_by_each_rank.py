"""Each rank draws a split of its own."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split

dist.init_process_group("gloo")
rank = dist.get_rank()
dataset = TensorDataset(torch.arange(60.0).reshape(60, 1) / 60)
torch.manual_seed(100 + rank)
train_set, held_out = random_split(dataset, [48, 12])  # expect: DD107
sampler = DistributedSampler(train_set)
train_loader = DataLoader(train_set, batch_size=4, sampler=sampler)
held_out_loader = DataLoader(held_out, batch_size=4)
model = DistributedDataParallel(nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    sampler.set_epoch(epoch)
    model.train()
    for (batch,) in train_loader:
        optimizer.zero_grad()
        (model(batch) - batch).square().mean().backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        loss = torch.stack([(model.module(x) - x).abs().mean() for (x,) in held_out_loader]).mean()
    dist.all_reduce(loss)
    if rank == 0:
        print(f"epoch {epoch}: {loss.item() / dist.get_world_size():.4f}")
dist.destroy_process_group()
