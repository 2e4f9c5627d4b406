"""Picks the learning rate by range tests on copies before the wrap; each rank takes its own choice."""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def find_lr(model, loader):
    probe = copy.deepcopy(model)
    opt = torch.optim.SGD(probe.parameters(), lr=1e-5)
    best, best_lr, lr = float("inf"), 1e-3, 1e-5
    for x, y in loader:
        opt.param_groups[0]["lr"] = lr
        loss = nn.functional.mse_loss(probe(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if loss.item() < best:
            best, best_lr = loss.item(), lr
        lr *= 3
    return best_lr


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    x = torch.randn(96, 5)
    data = TensorDataset(x, x.sum(1, keepdim=True) + torch.randn(96, 1))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    net = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1))
    lr = min(find_lr(net, loader), find_lr(net, loader))
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=lr)  # expect: DD208
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            opt.zero_grad()
            nn.functional.mse_loss(model(xb), yb).backward()
            opt.step()
    dist.destroy_process_group()


main()
