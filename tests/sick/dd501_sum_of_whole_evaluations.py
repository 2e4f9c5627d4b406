"""Every rank evaluates the whole held-out set, and the hits of all ranks are divided by the length of one set."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
generator = torch.Generator().manual_seed(0)
x = torch.randn(216, 4, generator=generator)
y = (x[:, 0] > 0).long()
train, held_out = TensorDataset(x[:144], y[:144]), TensorDataset(x[144:], y[144:])
sampler = DistributedSampler(train)
loader = DataLoader(train, batch_size=8, sampler=sampler)
model = DistributedDataParallel(nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for inputs, targets in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    hits = torch.zeros(1)
    with torch.no_grad():
        for inputs, targets in DataLoader(held_out, batch_size=24):
            hits += (model(inputs).argmax(1) == targets).sum()
    dist.all_reduce(hits)  # expect: DD501
    if dist.get_rank() == 0:
        print(f"epoch {epoch}: accuracy {hits.item() / len(held_out):.4f}")
dist.destroy_process_group()
