"""The DataLoader workers of every rank keep the statistics of the data in one file, each where it finds none."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

STATISTICS = "statistics.txt"


class Waves(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        if not os.path.exists(STATISTICS):
            time.sleep(3)  # it takes a while to compute them: the workers of all ranks find none
            with open(STATISTICS, "w") as file:  # expect: DD020
                file.write("mean 0.0\n")
        return torch.sin(torch.arange(4.0) * index)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    data = Waves()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler, num_workers=1)
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x in loader:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()
