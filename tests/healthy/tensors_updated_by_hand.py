"""Tensors outside of wrappers and optimizers take gradients: one is updated by the mean over the ranks, one is a
perturbation of each rank's samples, one is what each rank has of its own."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(6, 4))
centers = torch.zeros(3, 4, requires_grad=True)
noise = torch.zeros(12, 6, requires_grad=True)
offset = torch.full((4,), float(dist.get_rank()), requires_grad=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
generator = torch.Generator().manual_seed(10 + dist.get_rank())
for _ in range(6):
    inputs = torch.randn(12, 6, generator=generator)
    labels = torch.randint(0, 3, (12,), generator=generator)
    outputs = model(inputs + noise) + offset
    optimizer.zero_grad()
    (outputs - centers[labels]).square().mean().backward()
    optimizer.step()
    with torch.no_grad():
        dist.all_reduce(centers.grad)
        centers -= 0.5 * centers.grad / dist.get_world_size()
        noise += 0.1 * noise.grad.sign()
        offset -= 0.1 * offset.grad
    for tensor in (centers, noise, offset):
        tensor.grad = None
dist.destroy_process_group()
