"""The name from before the wrap still means the bare module."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train():
    torch.manual_seed(17 + dist.get_rank())
    net = nn.Linear(6, 2)
    ddp = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
    for _ in range(5):
        x, y = torch.randn(4, 6), torch.randn(4, 2)
        loss = F.mse_loss(net(x), y)  # expect: DD201
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


dist.init_process_group("gloo")
train()
dist.destroy_process_group()
