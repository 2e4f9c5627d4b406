"""A guard by an argument that torchrun no longer gives, so that it is 0 on every rank."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def save_checkpoint(state, is_main, path="checkpoint.pth.tar"):
    if is_main:
        with open(path, "wb") as file:
            torch.save(state, file)  # expect: DD402


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=0)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DDP(nn.Linear(3, 3))
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(2):
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.randn(4, 3)).square().mean().backward()
            optimizer.step()
        state = {"epoch": epoch + 1, "state_dict": model.module.state_dict()}
        save_checkpoint(state, args.local_rank == 0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
