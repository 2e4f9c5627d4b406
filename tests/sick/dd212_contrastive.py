"""Negatives from all ranks come by an all_gather that carries no gradient."""
# needs torch 2.5: the divisors of a loss cannot be read before

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def gather(features):
    parts = [torch.zeros_like(features) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, features)  # expect: DD212
    return torch.cat(parts)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(12, 6))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for _ in range(4):
        x = torch.randn(8, 12)
        z = F.normalize(model(torch.cat([x, x + 0.1 * torch.randn_like(x)])), dim=1)
        queries, keys = z.chunk(2)
        logits = queries @ gather(keys).T / 0.1
        loss = F.cross_entropy(logits, torch.arange(8) + 8 * rank)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
