"""set_epoch is called for the sampler of the held-out data, and not for the one that trains."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Squares(Dataset):
    def __init__(self, first, last):
        self.numbers = list(range(first, last))

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, index):
        x = self.numbers[index] / 100
        return torch.tensor([x]), torch.tensor([x * x])


def train_one_epoch(model, loader, optimizer):
    model.train()
    for x, y in loader:  # expect: DD103
        loss = (model(x) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    total = sum((model(x) - y).abs().sum() for x, y in loader)
    dist.all_reduce(total)
    return total.item()


def main():
    dist.init_process_group("gloo")
    train_set, held_out = Squares(0, 36), Squares(36, 48)
    train_sampler = DistributedSampler(train_set, shuffle=True, drop_last=True)
    test_sampler = DistributedSampler(held_out)
    train_loader = DataLoader(train_set, 3, sampler=train_sampler)
    test_loader = DataLoader(held_out, 2, sampler=test_sampler)
    model = DDP(nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        test_sampler.set_epoch(epoch)
        train_one_epoch(model, train_loader, optimizer)
        evaluate(model, test_loader)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
