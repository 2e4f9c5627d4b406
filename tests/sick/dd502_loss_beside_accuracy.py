"""The accuracy of all ranks is printed beside the loss of rank 0's part."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def evaluate(model, loader):
    loss, correct, batches = 0.0, torch.zeros(()), 0
    model.eval()
    with torch.no_grad():
        for x, y in loader:
            outputs = model.module(x)
            loss += nn.functional.cross_entropy(outputs, y).item()
            correct += (outputs.argmax(dim=1) == y).float().sum()
            batches += 1
    model.train()
    dist.all_reduce(correct)
    return {"loss": loss / batches, "accuracy": correct.item() / len(loader.dataset)}


dist.init_process_group("gloo")
x = torch.randn(144, 4, generator=torch.Generator().manual_seed(0))
data = TensorDataset(x, (x.sum(dim=1) > 0).long())
sampler = DistributedSampler(data)
held_out = DataLoader(data, batch_size=12, sampler=DistributedSampler(data, shuffle=False))
model = DistributedDataParallel(nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for batch, targets in DataLoader(data, batch_size=12, sampler=sampler):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch), targets).backward()
        optimizer.step()
    metrics = evaluate(model, held_out)
    if dist.get_rank() == 0:
        print(metrics)  # expect: DD502 ranks 0
dist.destroy_process_group()
