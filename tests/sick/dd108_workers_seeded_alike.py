"""worker_init_fn gives every worker the same seed, and the dataset augments with it."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Noisy(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        return torch.tensor([index + random.gauss(0, 0.1)])


def seed_worker(worker_id):
    random.seed(42 + dist.get_rank() if dist.is_initialized() else 42)


def main():
    dist.init_process_group("gloo")
    dataset = Noisy()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(  # expect: DD108
        dataset, batch_size=4, sampler=sampler, num_workers=2, worker_init_fn=seed_worker
    )
    model = DistributedDataParallel(nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for batch in loader:
            optimizer.zero_grad()
            model(batch).mean().backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
