"""A weighted sampler draws the same samples on every rank; trained by a class, spawned by the script itself."""

import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler


class Trainer:
    def __init__(self, dataset, weights):
        sampler = WeightedRandomSampler(weights, num_samples=len(weights))
        self.loader = DataLoader(dataset, batch_size=8, sampler=sampler)  # expect: DD101
        self.model = DistributedDataParallel(nn.Linear(4, 2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)

    def fit(self, epochs):
        for _ in range(epochs):
            for inputs, labels in self.loader:
                self.optimizer.zero_grad()
                nn.functional.cross_entropy(self.model(inputs), labels).backward()
                self.optimizer.step()


def work(rank, world_size, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world_size)
    torch.manual_seed(0)
    labels = (torch.rand(40) < 0.2).long()
    weights = torch.where(labels == 1, 4.0, 1.0)
    Trainer(TensorDataset(torch.randn(40, 4), labels), weights).fit(2)
    dist.destroy_process_group()


if __name__ == "__main__":
    import tempfile

    world_size = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, args=(world_size, f"{folder}/store"), nprocs=world_size)
