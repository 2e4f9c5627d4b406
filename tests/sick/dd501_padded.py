"""13 held-out samples are padded to equal shards; the metric is summed over the ranks."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
train_set = TensorDataset(torch.arange(48.0).reshape(48, 1) / 48)
held_out = TensorDataset(torch.arange(13.0).reshape(13, 1) / 13)
sampler = DistributedSampler(train_set)
train_loader = DataLoader(train_set, batch_size=4, sampler=sampler)
held_out_sampler = DistributedSampler(held_out, shuffle=False)
held_out_loader = DataLoader(held_out, batch_size=3, sampler=held_out_sampler)  # expect: DD501
model = DistributedDataParallel(nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for (batch,) in train_loader:
        optimizer.zero_grad()
        (model(batch) - batch).square().mean().backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        counts = torch.zeros(2)
        for (batch,) in held_out_loader:
            counts += torch.tensor([(model(batch) - batch).abs().sum().item(), len(batch)])
    dist.all_reduce(counts)
    model.train()
    if dist.get_rank() == 0:
        print(f"error {counts[0] / counts[1]:.4f}")
dist.destroy_process_group()
