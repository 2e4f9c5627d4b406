"""Groups of ranks issue collectives of their own, other ones than their neighbours; a pair sends and receives."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
first, rest = dist.new_group([0]), dist.new_group(list(range(1, world_size)))
torch.manual_seed(rank)
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(6):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).square().mean()
    loss.backward()
    optimizer.step()
    if rank == 0:
        dist.all_reduce(torch.ones(3), group=first)
        dist.send(loss.detach(), dst=1)
    else:
        dist.barrier(group=rest)
        dist.all_reduce(torch.ones(5), group=rest)
        if rank == 1:
            dist.recv(torch.empty(()), src=0)
mine = torch.tensor([float(rank)])
if rank == 0:
    dist.gather(mine, [torch.empty(1) for _ in range(world_size)], dst=0)
else:
    dist.gather(mine, dst=0)
dist.all_gather([torch.empty(1) for _ in range(world_size)], mine)
dist.destroy_process_group()
