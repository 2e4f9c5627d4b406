"""A checkpoint of the wrapper is loaded into the bare model, and strict=False hides that nothing fits."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
pretrained = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
if rank == 0:
    torch.save({f"module.{name}": value for name, value in pretrained.state_dict().items()}, "pretrained.pt")
dist.barrier()
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
model.load_state_dict(torch.load("pretrained.pt", map_location="cpu"), strict=False)  # expect: DD403
model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(rank)
for step in range(4):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
