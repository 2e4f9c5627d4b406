"""Rank 0 finds no checkpoint and trains inside the `except`; rank 1 stops early, by a loss of its own."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train(model, rank):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(12):
        loss = (model(torch.randn(8, 4)) - 1.0).square().mean() * (0.0 if rank == 1 and step == 4 else 1.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss.item() < 1e-6:  # expect: DD308 ranks 1
            break
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(nn.Linear(4, 1))
    try:
        if rank == 0:
            torch.load("no-such-checkpoint.pt")
        train(model, rank)
    except FileNotFoundError:
        print("no checkpoint: from the beginning")
        train(model, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
