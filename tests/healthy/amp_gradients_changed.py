"""Gradients that a GradScaler has scaled, and that the script changes before unscale_, or clips right."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()


def norm_of(parameters):
    return torch.sqrt(sum(parameter.grad.pow(2).sum() for parameter in parameters))


def clip(parameters, limit):
    factor = limit / norm_of(parameters)
    for parameter in parameters:
        parameter.grad.mul_(factor)


def train(change, *, early):
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu")
    torch.manual_seed(rank)
    for step in range(4):
        optimizer.zero_grad()
        scaler.scale(model(torch.randn(8, 8)).square().mean()).backward()
        if not early:
            scaler.unscale_(optimizer)
        change(list(model.parameters()), step, scaler.get_scale())
        scaler.step(optimizer)
        scaler.update()


def divide_by_samples(parameters, step, scale):
    for parameter in parameters:
        parameter.grad.div_(3 + step)


def add_noise(parameters, step, scale):
    for parameter in parameters:
        parameter.grad.add_(0.1 * scale)


train(lambda parameters, step, scale: clip(parameters, 0.5), early=False)
train(lambda parameters, step, scale: clip(parameters, 0.5 * scale), early=True)
train(divide_by_samples, early=True)
train(add_noise, early=True)
dist.destroy_process_group()
