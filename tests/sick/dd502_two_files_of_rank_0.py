"""Rank 0 prints its own part's accuracy, writes two files beside it, in later rounds, whatever the number is.

Buffers are broadcast in the wrapper's forward, and a loss is averaged in the first step after an evaluation: nothing
of that is an exchange of the metric.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS = 3

dist.init_process_group("gloo")
torch.manual_seed(0)
rank = dist.get_rank()
train_set = TensorDataset(torch.randn(96, 4), torch.randint(0, 2, (96,)))
test_set = TensorDataset(torch.randn(24, 4), torch.randint(0, 2, (24,)))
sampler = DistributedSampler(train_set)
train_loader = DataLoader(train_set, batch_size=8, sampler=sampler)
test_loader = DataLoader(test_set, batch_size=4, sampler=DistributedSampler(test_set, shuffle=False))
model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def evaluate():
    model.eval()
    correct = 0
    with torch.no_grad():
        for x, y in test_loader:
            correct += (model(x).argmax(1) == y).sum().item()
    model.train()
    return correct / len(test_loader.sampler)


for epoch in range(EPOCHS):
    sampler.set_epoch(epoch)
    for x, y in train_loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        shown = loss.detach().clone()
        dist.all_reduce(shown)
        optimizer.step()
    accuracy = evaluate()
    if rank == 0:
        print(f"epoch {epoch} accuracy {accuracy:.3f}")  # expect: DD502 ranks 0
        if epoch > 0:
            torch.save(model.module.state_dict(), "best.pt")
            torch.save({"accuracy": accuracy}, "best.json")
    dist.barrier()
dist.destroy_process_group()
