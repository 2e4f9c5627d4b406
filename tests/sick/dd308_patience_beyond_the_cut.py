"""Early stopping by each rank's own part of the held-out samples, with more patience than the run that is looked at."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.counter, self.stop = patience, float("inf"), 0, False

    def __call__(self, loss):
        self.counter = 0 if loss < self.best else self.counter + 1
        self.best = min(loss, self.best)
        self.stop = self.counter >= self.patience


def train_epoch(model, loader, optimizer):
    model.train()
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


@torch.no_grad()
def validate(model, loader):
    model.eval()
    return sum(model(x).square().mean().item() for (x,) in loader) / len(loader)


def main():
    dist.init_process_group("gloo")
    generator = torch.Generator().manual_seed(0)
    train_set, val_set = (TensorDataset(torch.randn(n, 4, generator=generator)) for n in (96, 24))
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=8, sampler=sampler)
    val_loader = DataLoader(val_set, batch_size=4, sampler=DistributedSampler(val_set, shuffle=False))
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    early_stopping = EarlyStopping(patience=5)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        train_epoch(model, train_loader, optimizer)
        val_loss = validate(model, val_loader)
        early_stopping(val_loss)
        if early_stopping.stop:  # expect: DD308
            break
    dist.destroy_process_group()


main()
