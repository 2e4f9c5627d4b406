"""Gradients are clipped at the GradScaler's scale."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for _ in range(4):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(torch.randn(8, 8)).float().square().mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # expect: DD217
    scaler.step(optimizer)
    scaler.update()
dist.destroy_process_group()
