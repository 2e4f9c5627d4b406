"""A sampler divides a part of the dataset that all ranks take, and the rest is held out."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


def main():
    dist.init_process_group("gloo")
    dataset = TensorDataset(torch.randn(72, 4, generator=torch.Generator().manual_seed(1)))
    part = Subset(dataset, range(len(dataset) - 12))
    sampler = DistributedSampler(part)
    loader = DataLoader(part, batch_size=4, sampler=sampler)
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for (batch,) in loader:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
    dist.destroy_process_group()


main()
