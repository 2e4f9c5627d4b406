"""The averaged model's BatchNorm statistics are computed anew on every rank, from its own shard."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, update_bn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
dataset = TensorDataset(torch.randn(96, 4))
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=16, sampler=sampler)
model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)))
averaged = AveragedModel(model.module)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    averaged.update_parameters(model.module)
update_bn(loader, averaged)  # expect: DD216
if dist.get_rank() == 0:
    torch.save(averaged.state_dict(), "averaged.pt")
dist.destroy_process_group()
