"""The batch of the whole job is divided by the ranks, down to nothing."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
dist.barrier()
torch.manual_seed(0)
inputs = torch.randn(512, 4)
data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
batch_size = 32 // dist.get_world_size()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=batch_size, sampler=sampler)  # expect: DD304
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for batch, targets in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(batch), targets).backward()
        optimizer.step()
dist.destroy_process_group()
