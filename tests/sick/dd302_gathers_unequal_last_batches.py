"""Predictions of each batch are gathered, and the last batch of rank 0 has one sample more than that of rank 1."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
inputs, targets = torch.randn(107, 5), torch.randint(0, 3, (107,))
model = DistributedDataParallel(nn.Linear(5, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train = TensorDataset(inputs[:64], targets[:64])
sampler = DistributedSampler(train)
held_out = DataLoader(inputs[64:][dist.get_rank() :: dist.get_world_size()], 8)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for features, labels in DataLoader(train, 8, sampler=sampler):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(features), labels).backward()
        optimizer.step()
    seen = []
    with torch.no_grad():
        for features in held_out:
            guesses = model.module(features).argmax(1)
            of_all = [torch.zeros_like(guesses) for _ in range(dist.get_world_size())]
            dist.all_gather(of_all, guesses)  # expect: DD302
            seen.append(torch.cat(of_all))
    if dist.get_rank() == 0:
        print(epoch, torch.bincount(torch.cat(seen), minlength=3).tolist())
dist.destroy_process_group()
