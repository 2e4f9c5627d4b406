"""Rank 0 prints the accuracy of its own part of the held-out samples."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
train_set = TensorDataset(torch.randn(48, 4), torch.randint(0, 2, (48,)))
test_set = TensorDataset(torch.randn(24, 4), torch.randint(0, 2, (24,)))
sampler = DistributedSampler(train_set)
train_loader = DataLoader(train_set, batch_size=4, sampler=sampler)
test_loader = DataLoader(test_set, batch_size=4, sampler=DistributedSampler(test_set, shuffle=False))
model = DistributedDataParallel(nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    model.train()
    for x, y in train_loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    model.eval()
    correct = 0
    with torch.no_grad():
        for x, y in test_loader:
            correct += (model(x).argmax(1) == y).sum().item()
    if dist.get_rank() == 0:
        print(f"epoch {epoch} accuracy {correct / len(test_loader.sampler):.3f}")  # expect: DD502 ranks 0
dist.destroy_process_group()
