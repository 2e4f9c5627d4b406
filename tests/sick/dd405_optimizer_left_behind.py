"""Resumes the weights and the epoch; the optimizer's state stays in the file."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

CHECKPOINT = "checkpoint.pt"


def main():
    dist.init_process_group("gloo")
    dataset = TensorDataset(torch.arange(48.0).reshape(48, 1) / 48)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler)
    if dist.get_rank() == 0 and not os.path.exists(CHECKPOINT):
        run_before(CHECKPOINT)
    dist.barrier()
    model, start = nn.Linear(1, 1), 0
    if os.path.exists(CHECKPOINT):
        state = torch.load(CHECKPOINT, map_location="cpu")
        model.load_state_dict(state["model"])  # expect: DD405
        start = state["epoch"] + 1
    model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(start, start + 2):
        sampler.set_epoch(epoch)
        for (batch,) in loader:
            optimizer.zero_grad()
            (model(batch) - batch).square().mean().backward()
            optimizer.step()
        dist.barrier()
        if dist.get_rank() == 0:
            save(CHECKPOINT, model.module, optimizer, epoch)
    dist.barrier()
    dist.destroy_process_group()


def save(path, model, optimizer, epoch):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, path)


def run_before(path):
    """What an earlier run left."""
    model = nn.Linear(1, 1)
    save(path, model, torch.optim.AdamW(model.parameters(), lr=1e-3), 4)


main()
