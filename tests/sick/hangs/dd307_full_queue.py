"""Every rank reports its losses into a queue of two places, and the reader of rank 1's has ended."""

import multiprocessing as mp

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def read(losses):
    for _ in range(2):
        losses.get()


dist.init_process_group("gloo")
context = mp.get_context("fork")
losses = context.Queue(maxsize=2)
if dist.get_rank() == 1:
    context.Process(target=read, args=(losses,), daemon=True).start()
torch.manual_seed(dist.get_rank())
model = DDP(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(10):
    optimizer.zero_grad()
    loss = model(torch.randn(16, 4)).square().mean()
    loss.backward()
    optimizer.step()
    if dist.get_rank() == 1:
        losses.put(loss.item())  # expect: DD307 ranks 1
dist.destroy_process_group()
