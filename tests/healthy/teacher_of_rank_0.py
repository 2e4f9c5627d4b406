"""Rank 0 trains a small teacher by itself while the others wait, and calibrates a temperature beside the training."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
x = torch.randn(240, 5)
y = (x.sum(1) > 0).long()
teacher = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 2))
if rank == 0:
    optimizer = torch.optim.Adam(teacher.parameters(), lr=0.01)
    for _ in range(150):
        chosen = torch.randint(0, 240, (32,))
        optimizer.zero_grad()
        functional.cross_entropy(teacher(x[chosen]), y[chosen]).backward()
        optimizer.step()
dist.barrier()
for parameter in teacher.parameters():
    dist.broadcast(parameter.data, 0)
student = DistributedDataParallel(nn.Linear(5, 2))
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
temperature = nn.Parameter(torch.ones(()))
calibration = torch.optim.SGD([temperature], lr=0.01)
sampler = DistributedSampler(TensorDataset(x, y))
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in DataLoader(sampler.dataset, batch_size=8, sampler=sampler):
        optimizer.zero_grad()
        with torch.no_grad():
            target = teacher(x).softmax(-1)
        logits = student(x)
        functional.kl_div(logits.log_softmax(-1), target, reduction="batchmean").backward()
        optimizer.step()
        if rank == 0:
            calibration.zero_grad()
            functional.cross_entropy(logits.detach() / temperature, y).backward()
            calibration.step()
dist.destroy_process_group()
