"""A dataset augments with a generator of its own, of which each worker gets a copy."""

import random

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Augmented(Dataset):
    def __init__(self, n, seed):
        self.x = torch.randn(n, 4, generator=torch.Generator().manual_seed(0))
        self.rng = random.Random(seed)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i] * self.rng.uniform(0.8, 1.2)


def init_worker(worker_id):
    torch.set_num_threads(1)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    data = Augmented(192, seed=99)
    sampler = DistributedSampler(data)
    loader = DataLoader(  # expect: DD108
        data, 8, sampler=sampler, num_workers=2, worker_init_fn=init_worker
    )
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    opt = torch.optim.SGD(model.parameters(), 0.05)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x in loader:
            opt.zero_grad()
            (model(x) - x).square().mean().backward()
            opt.step()
    dist.destroy_process_group()


main()
