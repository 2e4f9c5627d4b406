"""Only rank 0 updates its weights."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def train(model, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        model.zero_grad()
        model(torch.randn(8, 4)).abs().mean().backward()
        if dist.get_rank() == 0:  # expect: DD225 ranks 1-
            optimizer.step()


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
train(DDP(nn.Linear(4, 3)), 5)
dist.destroy_process_group()
