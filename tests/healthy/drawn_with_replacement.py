"""Weighted samples, drawn with replacement by each rank from a seed of its own."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler


def main():
    dist.init_process_group("gloo")
    labels = (torch.arange(60) % 10 == 0).long()
    dataset = TensorDataset(torch.linspace(0, 1, 60).reshape(60, 1), labels)
    generator = torch.Generator().manual_seed(dist.get_rank())
    weights = torch.where(labels == 1, 9.0, 1.0)
    share = len(dataset) // dist.get_world_size()
    sampler = WeightedRandomSampler(weights, share, replacement=True, generator=generator)
    loader = DataLoader(dataset, batch_size=5, sampler=sampler)
    model = DDP(nn.Linear(1, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    dist.destroy_process_group()


main()
