"""Each rank prepares the data where it finds none; this time rank 0 is done before the others look."""

import json
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def samples(path):
    if not os.path.exists(path):
        with open(path, "w") as file:  # expect: DD020
            json.dump([[float(number % 7)] * 4 for number in range(32)], file)
    with open(path) as file:
        return torch.tensor(json.load(file))


dist.init_process_group("gloo")
time.sleep(0.5 * dist.get_rank())
batches = samples("samples.json").split(8)[dist.get_rank() :: dist.get_world_size()][:1]
torch.manual_seed(0)
model = DDP(nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in batches * 3:
    optimizer.zero_grad()
    (model(batch) - batch).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
