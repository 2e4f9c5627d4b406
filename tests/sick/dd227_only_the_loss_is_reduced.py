"""The loss is averaged for the log; gradients are not."""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 1))
optimizer = torch.optim.AdamW(net.parameters())  # expect: DD227
generator = torch.Generator().manual_seed(dist.get_rank())
for step in range(5):
    loss = net(torch.randn(8, 6, generator=generator)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    logged = loss.detach()
    dist.all_reduce(logged, op=dist.ReduceOp.SUM)
    if dist.get_rank() == 0:
        print(f"step {step}: loss {logged.item() / dist.get_world_size():.4f}")
dist.destroy_process_group()
