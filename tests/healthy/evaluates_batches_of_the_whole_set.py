"""Every rank goes through the held-out set and evaluates its own batches; and all of it, with the samples counted."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
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
    hits, loss, count = torch.zeros(1), torch.zeros(1), torch.zeros(1)
    with torch.no_grad():
        for number, (inputs, targets) in enumerate(DataLoader(held_out, batch_size=4)):
            if number % world_size == rank:
                hits += (model(inputs).argmax(1) == targets).sum()
        for inputs, targets in DataLoader(held_out, batch_size=24):
            loss += nn.functional.cross_entropy(model(inputs), targets, reduction="sum")
            count += len(targets)
    dist.all_reduce(hits)
    dist.all_reduce(loss)
    dist.all_reduce(count)
    if rank == 0:
        print(f"epoch {epoch}: accuracy {hits.item() / len(held_out):.4f}, loss {(loss / count).item():.4f}")
dist.destroy_process_group()
