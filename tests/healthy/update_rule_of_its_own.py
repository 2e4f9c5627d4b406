"""Weights are updated without an optimizer of torch, by gradients that DDP averaged."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(nn.Linear(4, 2))
torch.manual_seed(dist.get_rank())
for _ in range(12):
    model(torch.randn(8, 4)).square().mean().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
            parameter.grad = None
dist.destroy_process_group()
