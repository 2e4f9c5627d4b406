"""Rank 1's long sequence does not fit into its GPU."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def attend(x):
    if x.shape[0] > 8:  # what a GPU says
        raise torch.OutOfMemoryError(  # expect: DD806 ranks 1
            "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 1 has a total capacity of 79.15 GiB of which "
            "1.02 GiB is free. Process 4242 has 60.00 GiB memory in use."
        )
    return x


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(6):
    optimizer.zero_grad()
    x = torch.randn(16 if step == 3 and rank == 1 else 8, 4)
    model(attend(x)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
