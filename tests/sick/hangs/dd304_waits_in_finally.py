"""One rank meets a broken label, and its `finally` waits for the others, which train on."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def target_of(step, rank):
    labels = {"cat": 0.0, "dog": 1.0}
    names = ["cat", "dog", "cat", "bird" if rank == 1 else "dog", "cat", "dog"]
    return labels[names[step]]  # expect: DD304 ranks 1


def train(rank):
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(6):
        loss = (model(torch.randn(8, 4)) - target_of(step, rank)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    try:
        train(dist.get_rank())
    finally:
        dist.barrier()
        dist.destroy_process_group()
