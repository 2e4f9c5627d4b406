"""Each rank takes a part of the dataset, and shuffles that."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset, TensorDataset


def main():
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    dataset = TensorDataset(torch.randn(72, 4, generator=torch.Generator().manual_seed(1)))
    part = Subset(dataset, range(rank, len(dataset), ranks))
    loader = DataLoader(part, batch_size=4, shuffle=True)
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):
        for (batch,) in loader:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
    dist.destroy_process_group()


main()
