"""The wrapper's state is loaded strictly into the bare model: an error on every rank."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def train(model, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DDP(nn.Linear(4, 2))
    train(model, 3)
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), "model.pt")
    dist.barrier()
    fresh = nn.Linear(4, 2)
    fresh.load_state_dict(torch.load("model.pt"))  # expect: DD403
    train(DDP(fresh), 3)
    dist.destroy_process_group()


main()
