"""Train and held-out parts are cut out of a permutation that is not seeded alike; rank 0 evaluates."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset


class Waves(Dataset):
    def __len__(self):
        return 50

    def __getitem__(self, index):
        x = torch.tensor([index / 50])
        return x, torch.sin(x)


def split(dataset, share=0.8):
    order = list(range(len(dataset)))
    random.shuffle(order)
    cut = int(share * len(order))
    train = Subset(dataset, order[:cut])  # expect: DD107
    return train, Subset(dataset, order[cut:])


def main():
    dist.init_process_group("gloo")
    random.seed(dist.get_rank() * 17)
    train_set, test_set = split(Waves())
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=4, sampler=sampler)
    model = DDP(nn.Linear(1, 1))
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        if dist.get_rank() == 0:
            model.eval()
            with torch.no_grad():
                error = sum(nn.functional.mse_loss(model.module(x), y) for x, y in DataLoader(test_set, 5))
            print(f"{epoch} {error.item():.3f}")
            model.train()
        dist.barrier()
    dist.destroy_process_group()


main()
