"""Loops whose end looks like each rank's own decision: the loss is averaged first, or the way out is shut."""

import argparse
import math

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.bad, self.stop = patience, float("inf"), 0, False

    def __call__(self, loss):
        self.bad = 0 if loss < self.best else self.bad + 1
        self.best = min(loss, self.best)
        self.stop = self.bad >= self.patience


def averaged(value):
    total = torch.tensor(value)
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def train_epoch(model, optimizer):
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4)).square().mean()
        if not math.isfinite(loss.item()):
            break
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


def main():
    settings = argparse.Namespace(stop_by_loss=False, limit=None)
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    early_stopping, best = EarlyStopping(patience=9), float("inf")
    for epoch in range(4):
        train_loss = train_epoch(model, optimizer)
        if settings.stop_by_loss and train_loss > best:
            break
        if settings.limit is not None and train_loss < settings.limit:
            break
        best = min(best, train_loss)
        loss = averaged(train_loss)
        early_stopping(loss)
        if early_stopping.stop or loss < 1e-9:
            break
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {loss:.4f}")
    dist.barrier()
    dist.destroy_process_group()


main()
