"""The moving average is updated on rank 0, and every rank evaluates with its own."""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Ema:
    def __init__(self, model, decay):
        self.shadow, self.decay = copy.deepcopy(model).eval(), decay

    @torch.no_grad()
    def update(self, model):
        for mine, theirs in zip(self.shadow.parameters(), model.parameters(), strict=True):
            mine.lerp_(theirs, 1 - self.decay)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)))
    ema = Ema(model.module, 0.9)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        if dist.get_rank() == 0:
            ema.update(model.module)  # expect: DD226
    with torch.no_grad():
        loss = ema.shadow(torch.randn(8, 4)).square().mean()
    dist.all_reduce(loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
