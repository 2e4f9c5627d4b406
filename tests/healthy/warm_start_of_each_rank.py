"""Each rank scales its own data by a rule that it learns, as long as that takes; rank 0 then gives the model a start.

What they train together after the wrap is another training: neither rates nor numbers of steps belong together.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
x = torch.randn(64, 3) * (rank + 1)


def fit(model, parameters, rate, steps, loss):
    optimizer = torch.optim.SGD(parameters, lr=rate, momentum=0.9)
    for _ in range(steps):
        chosen = x[torch.randint(0, 64, (8,))]
        optimizer.zero_grad()
        loss(model(chosen)).backward()
        optimizer.step()


scale = nn.Parameter(torch.ones(3))
fit(lambda x: x * scale, [scale], 0.1 / (rank + 1), 12 + 9 * rank, lambda x: (x.var(0) - 1).square().sum())
x = (x * scale).detach()
model = nn.Linear(3, 1)
if rank == 0:
    fit(model, model.parameters(), 0.01, 10, lambda y: y.square().mean())
model = DistributedDataParallel(model)
fit(model, model.parameters(), 0.1, 40, lambda y: y.square().mean())
dist.destroy_process_group()
