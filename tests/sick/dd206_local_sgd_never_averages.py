"""Post-local SGD without an averager: after the first steps, each rank trains a model of its own."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as post_local
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(4, 2))
subgroup, _ = dist.new_subgroups(1)
state = post_local.PostLocalSGDState(process_group=None, subgroup=subgroup, start_localSGD_iter=2)
model.register_comm_hook(state, post_local.post_localSGD_hook)  # expect: DD206
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(8):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).square().mean()
    loss.backward()
    optimizer.step()
    dist.all_reduce(loss.detach())
dist.destroy_process_group()
