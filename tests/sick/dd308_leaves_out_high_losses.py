"""A rank leaves out the backward of a batch with a high loss, which no batch of this run has."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    limit = 1000.0
    for _ in range(6):
        batch = torch.randn(8, 4)
        loss = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
        if loss.item() > limit:  # expect: DD308
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


main()
