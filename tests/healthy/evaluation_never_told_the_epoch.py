"""Evaluation loaders that never hear of the epoch, padding, drop_last; the metric is reduced."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
train_set = TensorDataset(torch.randn(50, 4), torch.randint(0, 2, (50,)))
test_set = TensorDataset(torch.randn(17, 4), torch.randint(0, 2, (17,)))
sampler = DistributedSampler(train_set, drop_last=True)
train_loader = DataLoader(train_set, batch_size=4, sampler=sampler, drop_last=True)
test_loader = DataLoader(test_set, batch_size=3, sampler=DistributedSampler(test_set, shuffle=False))
model = DistributedDataParallel(nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    sampler.set_epoch(epoch)
    model.train()
    for x, y in train_loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    model.eval()
    counts = torch.zeros(2)
    with torch.no_grad():
        for x, y in test_loader:
            counts += torch.tensor([(model(x).argmax(1) == y).sum(), len(y)])
    dist.all_reduce(counts)
    if dist.get_rank() == 0:
        print(f"epoch {epoch} accuracy {counts[0] / counts[1]:.3f}")
        torch.save(model.module.state_dict(), "last.pt")
dist.barrier()
dist.destroy_process_group()
