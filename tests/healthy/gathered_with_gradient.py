"""Negatives from all ranks by an all_gather that lets gradients pass; a detached one feeds the log."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.nn.functional import all_gather
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
model = DistributedDataParallel(nn.Linear(12, 6))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    x = torch.randn(8, 12)
    z = F.normalize(model(torch.cat([x, x + 0.1 * torch.randn_like(x)])), dim=1)
    queries, keys = z.chunk(2)
    logits = queries @ torch.cat(all_gather(keys.contiguous())).T / 0.1
    loss = F.cross_entropy(logits, torch.arange(8) + 8 * rank)
    features = [torch.zeros_like(queries) for _ in range(size)]
    dist.all_gather(features, queries.detach().contiguous())
    losses = [torch.zeros_like(loss) for _ in range(size)]
    dist.all_gather(losses, loss)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        print(f"loss {torch.stack(losses).mean().item():.3f}, spread {torch.cat(features).std().item():.3f}")
dist.destroy_process_group()
