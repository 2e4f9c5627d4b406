"""A layer is frozen when the model is wrapped, and is trained from the second epoch on."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2))
net[0].requires_grad_(False)
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
torch.manual_seed(dist.get_rank())
for epoch in range(2):
    if epoch == 1:
        net[0].requires_grad_(True)  # expect: DD205
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(8, 6)).square().mean().backward()
        optimizer.step()
dist.destroy_process_group()
