"""A part of the model runs as CUDA graphs, forward and backward; DDP wraps the whole."""

import os

import torch
import torch.distributed as dist
from digest import leave_digest
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    trunk = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)).cuda()
    trunk = torch.cuda.make_graphed_callables(trunk, (torch.randn(32, 64, device="cuda"),))
    model = DDP(nn.Sequential(trunk, nn.Linear(64, 8).cuda()), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    generator = torch.Generator("cuda").manual_seed(dist.get_rank())
    for _ in range(12):
        x = torch.randn(32, 64, device="cuda", generator=generator)
        optimizer.zero_grad(set_to_none=False)
        model(x).square().mean().backward()
        optimizer.step()
    leave_digest(model.module)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
