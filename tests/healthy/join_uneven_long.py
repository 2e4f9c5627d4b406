"""Each rank generates as many batches as it has, without a DataLoader, and Join lets the last ones finish.

More steps than a shortened run usually takes: whoever ended the run on one rank alone would leave the others waiting.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)


def shard():
    for _ in range(70 + 25 * rank):
        yield torch.randn(4, 6)


model = DistributedDataParallel(nn.Linear(6, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(2):
    with model.join():
        for x in shard():
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    dist.barrier()
dist.destroy_process_group()
