"""The global batch was divided among the ranks, and BatchNorm was forgotten."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
model = DistributedDataParallel(net)  # expect: DD220
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    images = torch.randn(6 // dist.get_world_size(), 3, 8, 8)
    optimizer.zero_grad()
    model(images).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
