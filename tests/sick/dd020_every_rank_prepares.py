"""Every rank prepares the same file, and reads it right away."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def prepare(path):
    with open(path, "w") as file:  # expect: DD020
        file.write("\n".join(str(i / 64) for i in range(64)))
    with open(path) as file:
        return file.read()


dist.init_process_group("gloo")
prepare("numbers.txt")
# Half of a file may have been read, and then ranks would have fewer batches, too: another disease.
numbers = torch.arange(64)[dist.get_rank() :: dist.get_world_size()] / 64
model = DistributedDataParallel(nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in numbers[:20].reshape(-1, 4, 1):
    optimizer.zero_grad()
    (model(batch) - batch).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
