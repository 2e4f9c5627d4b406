"""Rank 0 runs the model in train mode for its dropout, with batch norm in eval mode; all ranks measure statistics."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def spread(network, inputs, norms):
    for norm in norms:
        norm.eval()
    with torch.no_grad():
        spread = torch.stack([network(inputs) for _ in range(4)]).std(0).mean()
    for norm in norms:
        norm.train()
    return spread


dist.init_process_group("gloo")
torch.manual_seed(0)
network = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.2), nn.Linear(12, 1))
model = DistributedDataParallel(network)
optimizer = torch.optim.Adam(model.parameters())
torch.manual_seed(dist.get_rank() + 1)
for step in range(12):
    optimizer.zero_grad()
    model(torch.randn(16, 6)).square().mean().backward()
    optimizer.step()
    if step % 6 == 5:
        with torch.no_grad():
            model.module(torch.randn(64, 6))
        if dist.get_rank() == 0:
            print(spread(model.module, torch.randn(16, 6), [network[1]]))
            torch.save(model.module.state_dict(), "model.pt")
        dist.barrier()
dist.destroy_process_group()
