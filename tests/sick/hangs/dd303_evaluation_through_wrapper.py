"""Rank 0 evaluates through the wrapper, whose forward broadcasts the BatchNorm's buffers."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def evaluate(model, batches):
    model.eval()
    with torch.no_grad():
        losses = [model(x).square().mean() for x in batches]  # expect: DD303 ranks 0
    model.train()
    return sum(losses) / len(losses)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    held_out = torch.randn(3, 8, 4)
    torch.manual_seed(dist.get_rank())
    model = DDP(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(evaluate(model, held_out))
    dist.destroy_process_group()


main()
