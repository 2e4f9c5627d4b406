"""The length of the schedule is that of a loader without a sampler."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

EPOCHS, BATCH = 2, 4

dist.init_process_group("gloo")
torch.manual_seed(0)
dataset = TensorDataset(torch.randn(96, 4), torch.randn(96, 1))
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=BATCH, sampler=sampler)
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
everything = DataLoader(dataset, batch_size=BATCH)
length = EPOCHS * len(everything)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=length)  # expect: DD219
for epoch in range(EPOCHS):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        scheduler.step()
dist.destroy_process_group()
