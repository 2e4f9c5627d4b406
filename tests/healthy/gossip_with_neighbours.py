"""Each rank averages its weights with its neighbour's after every step, so they come near and are never equal."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def mix(model, rank, world_size):
    mine = parameters_to_vector(model.parameters()).detach()
    theirs = torch.empty_like(mine)
    work = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, mine, (rank + 1) % world_size),
            dist.P2POp(dist.irecv, theirs, (rank - 1) % world_size),
        ]
    )
    for one in work:
        one.wait()
    vector_to_parameters((mine + theirs) / 2, model.parameters())


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Linear(10, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(1 + rank)
    for _ in range(8):
        inputs = torch.randn(12, 10)
        optimizer.zero_grad()
        (model(inputs) - inputs[:, :1]).square().mean().backward()
        optimizer.step()
        mix(model, rank, world_size)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
