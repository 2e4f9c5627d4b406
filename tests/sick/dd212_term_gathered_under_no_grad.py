"""A term of the loss spreads features apart from those of all ranks, which come without their gradient."""
# needs torch 2.5: the divisors of a loss cannot be read before

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def spread(features):
    parts = [torch.zeros_like(features) for _ in range(dist.get_world_size())]
    with torch.no_grad():
        dist.all_gather(parts, features)  # expect: DD212
    return (features @ torch.cat(parts).T).exp().mean().log()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(12, 6))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(6):
    x, y = torch.randn(8, 12), torch.randint(0, 6, (8,))
    outputs = model(x)
    loss = F.cross_entropy(outputs, y) + 0.1 * spread(F.normalize(outputs, dim=1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
