"""Every other window of micro-batches estimates the curvature of the loss, and its gradients are cleared unused."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ACCUMULATE = 2

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
net = DDP(nn.Linear(4, 1))
sgd = torch.optim.SGD(net.parameters(), lr=0.1)
curvature = [torch.zeros_like(parameter) for parameter in net.parameters()]
for window in range(8):
    for micro_batch in range(ACCUMULATE):
        net.require_backward_grad_sync = micro_batch == ACCUMULATE - 1
        x = torch.randn(4, 4)
        (nn.functional.mse_loss(net(x), x.sum(1, keepdim=True)) / ACCUMULATE).backward()
    if window % 2:
        for estimate, parameter in zip(curvature, net.parameters(), strict=True):
            estimate.mul_(0.9).addcmul_(parameter.grad, parameter.grad, value=0.1)
    else:
        sgd.step()
    sgd.zero_grad()
dist.destroy_process_group()
