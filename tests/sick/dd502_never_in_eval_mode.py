"""Rank 0 prints the accuracy of its own part. The model is in train mode, so SyncBatchNorm talks while it evaluates.

A helper prints what it is given, on rank 0.
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def report(message, **options):
    if dist.get_rank() == 0:
        print(message, **options)


dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
train_set = TensorDataset(torch.linspace(-1, 1, 96).reshape(24, 4), torch.arange(24) % 2)
test_set = TensorDataset(torch.linspace(-2, 2, 48).reshape(12, 4), torch.arange(12) % 2)
sampler = DistributedSampler(train_set)
train_loader = DataLoader(train_set, batch_size=4, sampler=sampler)
test_loader = DataLoader(test_set, batch_size=4, sampler=DistributedSampler(test_set, shuffle=False))
layers = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
model = nn.SyncBatchNorm.convert_sync_batchnorm(layers).cuda()
model = DistributedDataParallel(model, device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in train_loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
        optimizer.step()
dist.barrier()
correct = total = 0
with torch.no_grad():
    for x, y in test_loader:
        correct += (model(x.cuda()).argmax(1).cpu() == y).sum().item()
        total += len(y)
report(f"accuracy {100 * correct // total} %", flush=True)  # expect: DD502 ranks 0
dist.destroy_process_group()
