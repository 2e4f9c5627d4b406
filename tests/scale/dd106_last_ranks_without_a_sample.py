"""Parts of equal size, rounded up: the last ranks of many get none, and the others wait for them."""

import math

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
inputs = torch.randn(96, 4)
data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
size = math.ceil(len(data) / dist.get_world_size())
first = dist.get_rank() * size
share = Subset(data, range(min(first, len(data)), min(first + size, len(data))))
loader = DataLoader(share, batch_size=1)  # expect: DD106 ranks 48-
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(2):
    for batch, targets in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(batch), targets).backward()
        optimizer.step()
dist.destroy_process_group()
