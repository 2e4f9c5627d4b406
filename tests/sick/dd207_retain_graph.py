"""One graph is taken backward twice: the loss, and then a penalty."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(7 + dist.get_rank())
net = DDP(nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 1)))
optimizer = torch.optim.Adam(net.parameters())
for _ in range(4):
    out = net(torch.randn(8, 5))
    loss, penalty = out.mean(), 0.01 * out.square().mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    penalty.backward()  # expect: DD207
    optimizer.step()
dist.destroy_process_group()
