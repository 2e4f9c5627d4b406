"""broadcast_buffers is off, and each rank evaluates its shard with its own statistics."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def evaluate(model, shard):
    model.eval()
    with torch.no_grad():
        loss = model(shard).square().mean()
    dist.all_reduce(loss, op=dist.ReduceOp.SUM)
    model.train()
    return loss.item() / dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    model = DistributedDataParallel(net, broadcast_buffers=False)  # expect: DD216
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(16, 4) + dist.get_rank()).square().mean().backward()
            optimizer.step()
        evaluate(model, torch.randn(16, 4))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
