"""Accumulation with no_sync whose shorter last window divides by its own length."""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

ACCUMULATE = 2


def train_epoch(model, loader, optimizer):
    for i, (x, y) in enumerate(loader):
        last = (i + 1) % ACCUMULATE == 0 or i + 1 == len(loader)
        length = min(ACCUMULATE, len(loader) - i // ACCUMULATE * ACCUMULATE)
        with nullcontext() if last else model.no_sync():
            loss = nn.functional.mse_loss(model(x), y) / length
            loss.backward()
        if last:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()


dist.init_process_group("gloo")
torch.manual_seed(0)
size = dist.get_world_size()
dataset = TensorDataset(torch.randn(20 * size, 4), torch.randn(20 * size, 1))
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=4, sampler=sampler)
net = DDP(nn.Linear(4, 1))
sgd = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    train_epoch(net, loader, sgd)
dist.destroy_process_group()
