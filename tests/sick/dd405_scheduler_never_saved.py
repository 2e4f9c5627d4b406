"""Model and optimizer are saved and restored; the schedule of the learning rate is neither, and starts over."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def build():
    model = DDP(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
    return model, optimizer, scheduler


def run(model, optimizer, scheduler, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        scheduler.step()


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model, optimizer, scheduler = build()
run(model, optimizer, scheduler, 3)
if dist.get_rank() == 0:
    parts = {"net": model.module, "optimizer": optimizer}
    torch.save({name: part.state_dict() for name, part in parts.items()}, "snapshot.pt")
dist.barrier()

model, optimizer, scheduler = build()
snapshot = torch.load("snapshot.pt", map_location="cpu")
model.module.load_state_dict(snapshot["net"])  # expect: DD405
optimizer.load_state_dict(snapshot["optimizer"])
run(model, optimizer, scheduler, 3)
dist.destroy_process_group()
