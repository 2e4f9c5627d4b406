"""A mixture of experts: tokens travel to the rank that holds their expert, and nobody averages experts."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Exchange(torch.autograd.Function):
    """All-to-all in both directions."""

    @staticmethod
    def forward(ctx, tokens):
        received = torch.empty_like(tokens)
        dist.all_to_all_single(received, tokens.contiguous())
        return received

    @staticmethod
    def backward(ctx, gradient):
        return Exchange.forward(ctx, gradient)


dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
dense = DistributedDataParallel(nn.Linear(8, 12))
head = DistributedDataParallel(nn.Linear(12, 3))
expert = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 12))
optimizer = torch.optim.SGD([*dense.parameters(), *head.parameters()], lr=0.05)
optimizer_of_expert = torch.optim.SGD(expert.parameters(), lr=0.05)
for _ in range(5):
    hidden = dense(torch.randn(6 * size, 8))
    hidden = hidden + Exchange.apply(expert(Exchange.apply(hidden)))
    loss = F.cross_entropy(head(hidden), torch.randint(0, 3, (6 * size,)))
    optimizer.zero_grad()
    optimizer_of_expert.zero_grad()
    loss.backward()
    for parameter in expert.parameters():
        parameter.grad /= size
    optimizer.step()
    optimizer_of_expert.step()
dist.destroy_process_group()
