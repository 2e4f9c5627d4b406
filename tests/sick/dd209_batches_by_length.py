"""Batches of unequal size: each rank packs what fits into its budget."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Task:
    def __init__(self, rank):
        self.generator = torch.Generator().manual_seed(rank)
        self.size = 4 * (rank + 1)
        self.criterion = nn.CrossEntropyLoss()

    def loss(self, model):
        inputs = torch.randn(self.size, 6, generator=self.generator)
        labels = torch.randint(0, 4, (self.size,), generator=self.generator)
        return self.criterion(model(inputs), labels)  # expect: DD209


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(6, 4))
    optimizer = torch.optim.Adam(model.parameters())
    task = Task(dist.get_rank())
    for _ in range(4):
        optimizer.zero_grad()
        task.loss(model).backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
