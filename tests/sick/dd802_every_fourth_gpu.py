"""Each rank takes the fourth GPU after the last one's, as on the machine that this was written for."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("nccl")
    dist.barrier()
    gpu = 4 * dist.get_rank()
    torch.cuda.set_device(gpu)  # expect: DD802 ranks 1-
    model = DistributedDataParallel(nn.Linear(4, 1).to(gpu), device_ids=[gpu])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(8, 4).to(gpu)).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
