"""L-BFGS computes loss and gradients as often as it likes in one step, and needs the average each time."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
inputs = torch.randn(64, 4)[dist.get_rank() :: dist.get_world_size()]
targets = inputs.sum(1, keepdim=True)
model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)))
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=6)


def closure():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    return loss


for _ in range(5):
    optimizer.step(closure)
dist.destroy_process_group()
