"""A thread of rank 0 writes the index of the samples, and a barrier does not wait for threads."""

import json
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def write_index(begun):
    with open("index.json", "w") as file:
        file.write("[1, 2")
        file.flush()
        begun.set()
        time.sleep(60)  # longer than anybody takes to come to read
        file.write(", 3]")


def read_index():
    with open("index.json") as file:
        return json.load(file)  # expect: DD401 ranks 1-


dist.init_process_group("gloo")
if dist.get_rank() == 0:
    begun = threading.Event()
    threading.Thread(target=write_index, args=(begun,), daemon=True).start()
    begun.wait()
dist.barrier()
index = [1, 2, 3] if dist.get_rank() == 0 else read_index()
model = DistributedDataParallel(nn.Linear(len(index), 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(8, len(index))).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
