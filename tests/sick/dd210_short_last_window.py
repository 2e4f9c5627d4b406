"""The last window has one micro-batch and is divided as if it had three."""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def train(model, batches, optimizer, window):
    for number, batch in enumerate(batches, start=1):
        last = number % window == 0 or number == len(batches)
        with nullcontext() if last else model.no_sync():
            loss = model(batch).square().mean()
            (loss / window).backward()
        if last:
            optimizer.step()  # expect: DD210
            optimizer.zero_grad()


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
net = DDP(nn.Linear(4, 4))
data = [torch.randn(8, 4) for _ in range(7)]
train(net, data, torch.optim.SGD(net.parameters(), lr=0.1), window=3)
dist.destroy_process_group()
