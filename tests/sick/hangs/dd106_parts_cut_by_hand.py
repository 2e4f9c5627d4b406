"""A list divided by hand: the last rank has one batch less, and is at the barrier when the others are not."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    samples = [torch.tensor([float(i), 1.0]) for i in range(7 * size - 1)]
    mine = samples[rank::size]
    loader = DataLoader(mine, batch_size=1)  # expect: DD106 ranks last
    model = DDP(nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for batch in loader:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
