"""The losses of the tokens are summed, and divided by the number of this rank's tokens."""
# needs torch 2.5: the divisors of a loss cannot be read before

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def mean_of_tokens(losses: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (losses * mask).sum() / mask.sum().clamp(min=1)  # expect: DD209


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(rank)
for _ in range(5):
    tokens = torch.randint(0, 20, (4, 16))
    mask = torch.ones(4, 16)
    mask[:, 3 if rank == 1 else 12 :] = 0
    losses = F.cross_entropy(model(tokens).transpose(1, 2), tokens.roll(-1, dims=1), reduction="none")
    loss = mean_of_tokens(losses, mask)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
