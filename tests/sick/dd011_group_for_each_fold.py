"""A cross-validation makes a process group for each fold; the second one meets in the store of the first."""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

generator = torch.Generator().manual_seed(0)
features, targets = torch.randn(48, 4, generator=generator), torch.randn(48, 1, generator=generator)


def train(kept):
    dist.init_process_group("gloo", timeout=timedelta(seconds=4))  # expect: DD011
    torch.manual_seed(dist.get_rank())
    part = TensorDataset(features[kept], targets[kept])
    sampler = DistributedSampler(part)
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for inputs, wanted in DataLoader(part, batch_size=4, sampler=sampler):
            optimizer.zero_grad()
            (model(inputs) - wanted).square().mean().backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    for fold in range(3):
        train(torch.arange(48) % 3 != fold)
