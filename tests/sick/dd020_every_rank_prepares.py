"""Every rank prepares the same file, and reads it right away."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def prepare(path):
    with open(path, "w") as file:  # expect: DD020
        file.write("\n".join(str(i / 64) for i in range(64)))
    with open(path) as file:
        return torch.tensor([float(line) for line in file])


dist.init_process_group("gloo")
numbers = prepare("numbers.txt")[dist.get_rank() :: dist.get_world_size()]
model = DistributedDataParallel(nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in numbers[:20].reshape(-1, 4, 1):
    optimizer.zero_grad()
    (model(batch) - batch).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
