"""Every rank empties the log to which rank 0 then adds its lines."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LOG = "train.log"

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
with open(LOG, "w"):  # expect: DD020
    pass
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(5):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).square().mean()
    loss.backward()
    optimizer.step()
    if rank == 0:
        with open(LOG, "a") as log:
            log.write(f"{step} {loss.item()}\n")
dist.destroy_process_group()
