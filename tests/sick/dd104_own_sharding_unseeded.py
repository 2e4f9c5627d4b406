"""Each rank cuts its part out of a permutation that it drew by itself."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Sampler, TensorDataset


class Shard(Sampler):
    """Every world_size-th index of a shuffled order."""

    def __init__(self, length):
        self.length = length

    def __iter__(self):
        order = torch.randperm(self.length).tolist()
        return iter(order[dist.get_rank() :: dist.get_world_size()])

    def __len__(self):
        return self.length // dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    dataset = TensorDataset(torch.arange(120.0).reshape(60, 2))
    loader = DataLoader(dataset, batch_size=5, sampler=Shard(len(dataset)))  # expect: DD104
    model = DistributedDataParallel(nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for _ in range(2):
        for (batch,) in loader:
            optimizer.zero_grad()
            model(batch).mean().backward()
            optimizer.step()
    dist.destroy_process_group()


main()
