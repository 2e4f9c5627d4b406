"""Rank 1 has a smaller budget: it returns from fit, and sums up what the others still train for."""

import datetime

import torch
import torch.distributed as dist
from torch import nn


class Budget:
    def __init__(self, epochs):
        self.left = epochs

    def spend(self):
        self.left -= 1
        return self.left


def train_one_epoch(model, optimizer):
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(2, 4)).square().mean().backward()
        optimizer.step()


def fit(model, optimizer, budget):
    for epoch in range(50):
        train_one_epoch(model, optimizer)
        if budget.spend() == 0:  # expect: DD308 ranks 1
            return epoch
    return 50


def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
    torch.manual_seed(dist.get_rank())
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    epochs = torch.tensor([float(fit(model, optimizer, Budget(2 if dist.get_rank() == 1 else 4)))])
    dist.all_reduce(epochs)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
