"""The first micro-batch of each window synchronises instead of the last."""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ACCUMULATE = 4


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(nn.Linear(10, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for i in range(4 * ACCUMULATE):
        x = torch.randn(8, 10)
        with nullcontext() if i % ACCUMULATE == 0 else model.no_sync():  # expect: DD202
            loss = (model(x) - x).square().mean() / ACCUMULATE
            loss.backward()
        if (i + 1) % ACCUMULATE == 0:
            optimizer.step()
            optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
