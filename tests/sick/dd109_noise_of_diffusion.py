"""A diffusion model: every rank draws the same noise and the same time steps for its own samples."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def set_seed(seed):
    torch.manual_seed(seed)  # expect: DD109


dist.init_process_group("gloo")
set_seed(7)
dataset = TensorDataset(torch.arange(96.0).reshape(48, 2) / 96)
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=4, sampler=sampler)
model = DistributedDataParallel(nn.Sequential(nn.Linear(3, 8), nn.SiLU(), nn.Linear(8, 2)))
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(2):
    sampler.set_epoch(epoch)
    for (clean,) in loader:
        noise = torch.randn_like(clean)
        level = torch.randint(1, 100, (len(clean), 1)) / 100
        noisy = (1 - level).sqrt() * clean + level.sqrt() * noise
        optimizer.zero_grad()
        (model(torch.cat([noisy, level], 1)) - noise).square().mean().backward()
        optimizer.step()
dist.destroy_process_group()
