"""Rank 0 looks at a batch before it saves, in train mode: the statistics that it saves have that batch in them."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def look(network, pictures):
    with torch.no_grad():
        return network(pictures).argmax(1).bincount(minlength=2)  # expect: DD216 ranks 0


dist.init_process_group("gloo")
torch.manual_seed(0)
network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))
model = DistributedDataParallel(network)
optimizer = torch.optim.Adam(model.parameters())
pictures = 3 + torch.randn(32, 1, 6, 6)
torch.manual_seed(dist.get_rank() + 1)
for step in range(12):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(torch.randn(16, 1, 6, 6)), torch.randint(0, 2, (16,))).backward()
    optimizer.step()
    if step % 6 == 5:
        if dist.get_rank() == 0:
            print(look(model.module, pictures))
            torch.save(model.module.state_dict(), "model.pt")
        dist.barrier()
dist.destroy_process_group()
