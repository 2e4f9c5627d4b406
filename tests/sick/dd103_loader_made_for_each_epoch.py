"""The loader and its sampler are made anew for every epoch, with the seed that they always have."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
images = TensorDataset(torch.arange(160.0).reshape(40, 4))


def batches():
    return DataLoader(images, batch_size=4, sampler=DistributedSampler(images, seed=7))


model = DistributedDataParallel(nn.Linear(4, 4))
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(2):
    for (batch,) in batches():  # expect: DD103
        optimizer.zero_grad()
        (model(batch) - batch).square().mean().backward()
        optimizer.step()
dist.destroy_process_group()
