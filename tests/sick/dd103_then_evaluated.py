"""The ranks that train are told no epoch; after they have ended, one fewer evaluates."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing import start_processes
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def join(rank, world_size, job):
    dist.init_process_group(
        "gloo", init_method=f"file://{os.getcwd()}/meet-{job}", rank=rank, world_size=world_size
    )
    torch.manual_seed(0)
    return TensorDataset(torch.randn(48, 4), torch.randn(48, 1))


def train(rank, world_size):
    dataset = join(rank, world_size, "train")
    loader = DataLoader(dataset, batch_size=4, sampler=DistributedSampler(dataset))
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):
        for samples, targets in loader:  # expect: DD103
            optimizer.zero_grad()
            nn.functional.mse_loss(model(samples), targets).backward()
            optimizer.step()
    if rank == 0:
        torch.save(model.module.state_dict(), "model.pt")
    dist.destroy_process_group()


def evaluate(rank, world_size):
    samples, targets = join(rank, world_size, "evaluate")[rank::world_size]
    model = nn.Linear(4, 1)
    model.load_state_dict(torch.load("model.pt"))
    with torch.no_grad():
        loss = nn.functional.mse_loss(model(samples), targets)
    dist.all_reduce(loss, op=dist.ReduceOp.SUM)
    if rank == 0:
        print(f"loss {loss / world_size:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    ranks = int(sys.argv[1])
    start_processes(train, (ranks,), ranks, start_method="fork")
    start_processes(evaluate, (ranks - 1,), ranks - 1, start_method="fork")
