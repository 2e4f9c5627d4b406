"""All gradients in one buffer, as was done before DDP: summed over the ranks and copied back without dividing."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Synchroniser:
    def __init__(self, module):
        self.parameters = list(module.parameters())[::-1]

    def __call__(self):
        buffer = torch.cat([parameter.grad.reshape(-1) for parameter in self.parameters])
        dist.all_reduce(buffer)  # expect: DD211
        sizes = [parameter.numel() for parameter in self.parameters]
        for parameter, values in zip(self.parameters, buffer.split(sizes), strict=True):
            parameter.grad = values.view_as(parameter)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 4)))
    synchronise = Synchroniser(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(8, 8)).square().mean().backward()
        synchronise()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
