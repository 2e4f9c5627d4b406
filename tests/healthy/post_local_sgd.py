"""torch's post-local SGD: a communication hook that stops reducing, and an optimizer that averages weights."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    PostLocalSGDState,
    post_localSGD_hook,
)
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(4, 2))
alone = dist.new_group([dist.get_rank()], use_local_synchronization=True)
state = PostLocalSGDState(process_group=None, subgroup=alone, start_localSGD_iter=2)
model.register_comm_hook(state, post_localSGD_hook)
optimizer = PostLocalSGDOptimizer(
    optim=torch.optim.SGD(model.parameters(), lr=0.05),
    averager=PeriodicModelAverager(period=4, warmup_steps=2),
)
for _ in range(8):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
