"""A checkpoint holds the script's options as an object, which torch.load has refused to read since torch 2.6."""

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(dist.get_rank())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
options = argparse.Namespace(lr=0.01)
if dist.get_rank() == 0:
    torch.save({"model": model.module.state_dict(), "options": options}, "checkpoint.pt")
dist.barrier()
saved = torch.load("checkpoint.pt", map_location="cpu", weights_only=True)  # expect: DD304
model.module.load_state_dict(saved["model"])
dist.destroy_process_group()
