"""Checkpoints go to a folder that nobody made."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def save(model, folder, epoch):
    if dist.get_rank() == 0:
        path = os.path.join(folder, f"epoch{epoch}.pt")
        torch.save({"model": model.module.state_dict(), "epoch": epoch}, path)  # expect: DD019 ranks 0
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        save(model, "outputs/run1", epoch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
