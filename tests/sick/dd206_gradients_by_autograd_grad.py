"""Gradients are taken by torch.autograd.grad and put into place by hand, and nobody averages them."""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
x = torch.randn(96, 6)
data = TensorDataset(x, (x[:, :1] > 0).float())
sampler = DistributedSampler(data, seed=1)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = DDP(nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for xb, yb in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(model(xb), yb)
        params = [p for p in model.parameters() if p.requires_grad]
        grads = torch.autograd.grad(loss, params)  # expect: DD206
        for p, g in zip(params, grads, strict=True):
            p.grad = g
        nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
