"""A broken sample ends one rank; whoever catches the error only prints it, and so does the rank that lost its peer."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train(rank):
    labels = [0.0] * (5 if rank == 1 else 20)
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(8):
        target = labels[step]
        loss = (model(torch.randn(8, 4)) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    try:
        train(dist.get_rank())
    except (IndexError, RuntimeError) as error:  # expect: DD305 ranks 1
        print("training failed:", error)
