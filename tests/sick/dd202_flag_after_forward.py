"""The flag is set between forward and backward, too late for this micro-batch."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def train(model, optimizer, batches, accumulate):
    model.require_backward_grad_sync = False
    for number, batch in enumerate(batches, start=1):
        loss = model(batch).logsumexp(dim=1).mean() / accumulate
        model.require_backward_grad_sync = number % accumulate == 0  # expect: DD202
        loss.backward()
        if number % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
            model.require_backward_grad_sync = False


dist.init_process_group("gloo")
generator = torch.Generator().manual_seed(100 + dist.get_rank())
net = DDP(nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)))
train(
    net,
    torch.optim.SGD(net.parameters(), lr=0.1),
    [torch.randn(8, 5, generator=generator) for _ in range(8)],
    2,
)
dist.destroy_process_group()
