"""In the middle of training rank 1 alone clips its weights."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(2)
model = DistributedDataParallel(nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
torch.manual_seed(dist.get_rank())
for step in range(6):
    loss = model(torch.randn(8, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # expect: DD206 ranks 1
    if step == 2 and dist.get_rank() == 1:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.clamp_(-0.01, 0.01)
dist.destroy_process_group()
