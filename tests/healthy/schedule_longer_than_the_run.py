"""Schedules that end after the run: one counts updates of more epochs, which later runs go on with, one is divided."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
torch.manual_seed(0)
size = dist.get_world_size()
planned, now, batch = 2 * size, 2, 4
dataset = TensorDataset(torch.randn(48, 4), torch.randn(48, 1))
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=batch, sampler=sampler)
for counted in (planned * len(loader), planned * (len(dataset) // (batch * size))):
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=counted)
    for epoch in range(now):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            scheduler.step()
dist.destroy_process_group()
