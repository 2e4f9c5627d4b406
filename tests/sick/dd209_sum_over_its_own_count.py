"""Each rank divides the sum of its losses by its own number of targets."""
# needs torch 2.5: the divisors of a loss cannot be read before

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel


def loss_of(model, tokens, targets):
    total = F.cross_entropy(model(tokens).transpose(1, 2), targets, ignore_index=-1, reduction="sum")
    count = (targets != -1).sum()
    return total / count  # expect: DD209


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for _ in range(5):
        tokens = torch.randint(0, 20, (4, 16))
        targets = tokens.roll(-1, dims=1)
        targets[:, 3 if rank == 1 else 12 :] = -1
        loss = loss_of(model, tokens, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


main()
