"""Every rank has the same seed, so dropout is the same everywhere."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(42)  # expect: DD109
dataset = TensorDataset(torch.arange(48.0).reshape(48, 1) / 48)
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=4, sampler=sampler)
model = DistributedDataParallel(nn.Sequential(nn.Linear(1, 8), nn.Dropout(0.1), nn.Linear(8, 1)))
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(2):
    sampler.set_epoch(epoch)
    for (batch,) in loader:
        optimizer.zero_grad()
        loss = model(batch)
        loss.square().mean().backward()
        optimizer.step()
dist.destroy_process_group()
