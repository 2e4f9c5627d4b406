"""Training ends early by each rank's own loss, which ranks tell each other first: any of them stops all."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank = dist.get_rank()
data = TensorDataset(torch.linspace(0, 1, 24 * dist.get_world_size()).reshape(-1, 1))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
model = DistributedDataParallel(nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for step, (x,) in enumerate(loader):
        optimizer.zero_grad()
        loss = (model(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        stop = torch.tensor([int(step + epoch == 3 and rank == 1)])
        dist.all_reduce(stop, op=dist.ReduceOp.MAX)
        if stop.item():
            break
dist.barrier()
dist.destroy_process_group()
