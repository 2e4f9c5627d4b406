"""All but rank 0 return from main when training is over; rank 0 still waits for them."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    if dist.get_rank() != 0:  # expect: DD305 ranks 1-
        return
    print("done")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
