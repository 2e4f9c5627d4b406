"""Rank 0 alone averages its loss at the end of each epoch; the others begin the next one."""

import datetime

import torch
import torch.distributed as dist
from torch import nn


def train_one_epoch(model, optimizer):
    total = torch.zeros(1)
    for _ in range(4):
        optimizer.zero_grad()
        loss = model(torch.randn(2, 4)).square().mean()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    if dist.get_rank() == 0:
        dist.all_reduce(total)  # expect: DD303 ranks 0
        print(f"mean loss {total.item() / dist.get_world_size() / 4:.3f}")


if __name__ == "__main__":
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
    torch.manual_seed(dist.get_rank())
    ddp = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
    sgd = torch.optim.SGD(ddp.parameters(), lr=0.01)
    for _ in range(3):
        train_one_epoch(ddp, sgd)
    dist.destroy_process_group()
