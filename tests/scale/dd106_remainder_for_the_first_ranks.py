"""Every rank takes each n-th sample: equal on two ranks; of 64, those from 36 on have one batch less."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
inputs = torch.randn(100, 4)
data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
share = Subset(data, range(dist.get_rank(), len(data), dist.get_world_size()))
loader = DataLoader(share, batch_size=1, shuffle=True)  # expect: DD106 ranks 36-
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(2):
    for batch, targets in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(batch), targets).backward()
        optimizer.step()
dist.destroy_process_group()
