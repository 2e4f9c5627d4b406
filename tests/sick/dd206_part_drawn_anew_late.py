"""Each rank draws a part of the model anew at step 40 of 75, from its own random stream."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
count = 75 * 4 * dist.get_world_size()
data = TensorDataset(torch.randn(count, 6), torch.randn(count, 2))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(rank)
for step, (x, y) in enumerate(loader):
    if step == 40:
        model.module[2].reset_parameters()
    optimizer.zero_grad()
    (model(x) - y).square().mean().backward()
    optimizer.step()  # expect: DD206 ranks 0-
dist.destroy_process_group()
