"""Every few updates, every rank takes the mean of all ranks' first layers, and keeps a last layer of its own."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
torch.manual_seed(0)
body, head = nn.Linear(5, 8), nn.Linear(8, 2)
optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.05)
torch.manual_seed(dist.get_rank())
for step in range(1, 13):
    optimizer.zero_grad()
    head(body(torch.randn(8, 5)).tanh()).square().mean().backward()
    optimizer.step()
    if step % 3 == 0:
        states: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(states, body.state_dict())
        body.load_state_dict({name: sum(state[name] for state in states) / len(states) for name in states[0]})
dist.destroy_process_group()
