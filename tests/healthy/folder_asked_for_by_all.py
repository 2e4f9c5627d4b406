"""All ranks ask for the folder and the vocabulary, and rank 0 alone makes them, by the other half of the condition."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
time.sleep(0.3 * rank)
if not os.path.exists("output") and rank == 0:
    os.makedirs("output")
if not os.path.exists("words.txt") and rank == 0:
    with open("words.txt", "w") as file:
        file.write("0.5 0.25 0.125 1.0")
dist.barrier()
with open("words.txt") as file:
    words = torch.tensor([float(word) for word in file.read().split()])
torch.manual_seed(rank)
model = DDP(nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(3):
    optimizer.zero_grad()
    (model(torch.randn(8, 4)) - words).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
