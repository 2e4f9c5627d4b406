"""A rank averages its loss over all ranks when it is high, between forward and backward; the others are in backward.

All of them do it in the first step, so the call in which gloo aborts the rank is not the first of its line.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def mean_of(value):
    value = value.detach().clone()
    dist.all_reduce(value)  # expect: DD303 ranks 1
    return value / dist.get_world_size()


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
shard = torch.randn(80, 16)
if dist.get_rank() == 1:
    shard[60] *= 100  # one bad sample
for step, batch in enumerate(shard.split(8)):
    optimizer.zero_grad()
    loss = model(batch).square().mean()
    if step == 0 or loss > 20:
        print(f"step {step}: loss {loss:.2f}, of all ranks {mean_of(loss):.2f}")
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
