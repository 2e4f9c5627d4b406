"""One log file for all ranks: rank 0 says how training goes, the others speak up where something is wrong."""

import logging

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
level = logging.WARNING if rank else logging.INFO
logging.basicConfig(filename="train.log", level=level, format=f"rank {rank}: %(message)s")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(rank)
for step in range(4):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).square().mean()
    loss.backward()
    optimizer.step()
    logging.info("step %d: %.3f", step, loss.item())
logging.warning("rank %d is done earlier than it was thought", rank)
dist.destroy_process_group()
