"""A dataset draws from a generator of NumPy in a global variable, which each worker seeds anew."""

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

RNG = np.random.default_rng(7)


class Augmented(Dataset):
    def __init__(self, n):
        self.x = torch.randn(n, 4, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i] * RNG.uniform(0.8, 1.2)


def seed_worker(worker):
    global RNG
    RNG = np.random.default_rng(torch.utils.data.get_worker_info().seed)


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
data = Augmented(192)
sampler = DistributedSampler(data)
loader = DataLoader(data, 8, sampler=sampler, num_workers=2, worker_init_fn=seed_worker)
model = DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.05)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x in loader:
        optimizer.zero_grad()
        (model(x.float()) - x).square().mean().backward()
        optimizer.step()
dist.destroy_process_group()
