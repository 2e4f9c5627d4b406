"""Each rank prints how many samples of its part it has right, over the length of the whole set."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
x = torch.randn(144, 4, generator=torch.Generator().manual_seed(0))
data = TensorDataset(x, (x.sum(dim=1) > 0).long())
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=12, sampler=sampler)
held_out = DataLoader(data, batch_size=12, sampler=DistributedSampler(data, shuffle=False))
model = DistributedDataParallel(nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def evaluate(loader):
    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in loader:
            right += (model(x).argmax(dim=1) == y).sum().item()
    model.train()
    return right / len(loader.dataset)


for epoch in range(2):
    sampler.set_epoch(epoch)
    for batch, targets in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch), targets).backward()
        optimizer.step()
    print(f"epoch {epoch}: {evaluate(held_out):.3f}")  # expect: DD502
dist.destroy_process_group()
