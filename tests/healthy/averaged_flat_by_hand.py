"""No wrapper: all gradients are averaged as one flat tensor."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

dist.init_process_group("gloo")
torch.manual_seed(11)
net = nn.Linear(6, 3)
optimizer = torch.optim.AdamW(net.parameters())
generator = torch.Generator().manual_seed(dist.get_rank())
for _ in range(5):
    optimizer.zero_grad(set_to_none=False)
    net(torch.randn(8, 6, generator=generator)).square().mean().backward()
    flat = parameters_to_vector([parameter.grad for parameter in net.parameters()])
    dist.all_reduce(flat)
    vector_to_parameters(flat / dist.get_world_size(), gradients := [p.grad for p in net.parameters()])
    for parameter, gradient in zip(net.parameters(), gradients, strict=True):
        parameter.grad = gradient
    optimizer.step()
dist.destroy_process_group()
