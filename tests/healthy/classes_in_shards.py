"""A softmax over classes that are divided among ranks: each holds, and alone trains, the weights of its own."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Gather(torch.autograd.Function):
    """The features of all ranks, and the sum of their gradients."""

    @staticmethod
    def forward(ctx, own):
        every = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(every, own.contiguous())
        return torch.cat(every)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return gradient.chunk(dist.get_world_size())[dist.get_rank()]


class ShardedLoss(torch.autograd.Function):
    """Cross entropy of logits of which each rank has some columns."""

    @staticmethod
    def forward(ctx, logits, targets):
        highest = logits.amax(1, keepdim=True)
        dist.all_reduce(highest, op=dist.ReduceOp.MAX)
        exponents = (logits - highest).exp()
        total = exponents.sum(1, keepdim=True)
        dist.all_reduce(total)
        ctx.save_for_backward(exponents / total, targets)
        found = (exponents / total * targets).sum(1)
        dist.all_reduce(found)
        return -found.log().mean()

    @staticmethod
    def backward(ctx, gradient):
        probabilities, targets = ctx.saved_tensors
        return gradient * (probabilities - targets) / len(targets), None


class Shard(nn.Module):
    """The classes of this rank."""

    def __init__(self, classes):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, 16) * 0.05)

    def forward(self, features, labels):
        every = [torch.empty_like(labels) for _ in range(dist.get_world_size())]
        dist.all_gather(every, labels)
        first = dist.get_rank() * len(self.weight)
        own = torch.arange(first, first + len(self.weight))
        targets = (torch.cat(every)[:, None] == own).float()
        return ShardedLoss.apply(Gather.apply(features) @ self.weight.t(), targets)


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
backbone = DistributedDataParallel(nn.Linear(12, 16))
head = Shard(classes=4)
optimizer = torch.optim.SGD([*backbone.parameters(), *head.parameters()], lr=0.1)
for _ in range(5):
    loss = head(backbone(torch.randn(8, 12)), torch.randint(0, 4 * dist.get_world_size(), (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
