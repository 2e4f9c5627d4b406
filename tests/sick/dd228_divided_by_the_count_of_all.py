"""Each rank divides the sum of its losses by the targets of all ranks, and DDP divides by the ranks once more."""
# needs torch 2.5: the divisors of a loss cannot be read before

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(5):
    tokens = torch.randint(0, 20, (4, 16))
    targets = torch.where(torch.rand(4, 16) < 0.3, -100, tokens.roll(-1, dims=1))
    count = (targets != -100).sum()
    dist.all_reduce(count)
    logits = model(tokens).reshape(-1, 20)
    total = F.cross_entropy(logits, targets.reshape(-1), reduction="sum")  # expect: DD228
    optimizer.zero_grad()
    (total / count).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 10.0)
    optimizer.step()
dist.destroy_process_group()
