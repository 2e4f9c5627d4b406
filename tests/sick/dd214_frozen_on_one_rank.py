"""Rank 1 freezes the body, by a configuration of its own."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self, freeze):
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 1)
        self.body.requires_grad_(not freeze)

    def forward(self, x):
        return self.head(self.body(x))


dist.init_process_group("gloo")
torch.manual_seed(0)
net = DDP(Net(freeze=dist.get_rank() == 1))  # expect: DD214 ranks 1
