"""A whole training step in a CUDA graph: warmed up on a side stream before, replayed with new inputs."""

import os

os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"  # as PyTorch's notes on CUDA graphs ask for DDP

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
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)).cuda()
        model = DDP(model, device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.empty(128, 64, device="cuda"), torch.empty(128, 64, device="cuda")
    generator = torch.Generator().manual_seed(1 + dist.get_rank())
    batches = [(torch.randn(128, 64, generator=generator), torch.randn(128, 64)) for _ in range(20)]

    def step():
        optimizer.zero_grad(set_to_none=True)
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()

    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for inputs, targets in batches[:11]:
            x.copy_(inputs)
            y.copy_(targets)
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for inputs, targets in batches:
        x.copy_(inputs)
        y.copy_(targets)
        graph.replay()
    torch.cuda.synchronize()
    leave_digest(model.module)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
