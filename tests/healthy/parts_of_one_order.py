"""Each rank takes its part of a list that all have put in one order, and shuffles only that; the list repeats files."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Recordings(Dataset):
    """One number for each file, as a file would hold it."""

    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return torch.tensor([float(self.paths[index][-8:-4])])


def order_of_all(paths):
    """The order that rank 0 has drawn."""
    random.shuffle(paths)
    dist.broadcast_object_list(paths, src=0)
    return paths


def loader_of(paths, seed, count=1):
    """A DataLoader over the part of this rank, which is shuffled by a seed of its own."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    part = order_of_all(paths * count)[rank::world_size]
    random.Random(seed + rank).shuffle(part)
    return DataLoader(Recordings(part), batch_size=8, shuffle=True)


def main():
    dist.init_process_group("gloo")
    paths = [f"recordings/{number:04}.wav" for number in range(96)]
    loaders = [loader_of(paths, 5), loader_of(paths[:48], 7, count=2)]
    model = DistributedDataParallel(nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for loader in loaders:
        for batch in loader:
            optimizer.zero_grad()
            model(batch).mean().backward()
            optimizer.step()
    dist.destroy_process_group()


main()
