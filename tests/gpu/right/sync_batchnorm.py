"""SyncBatchNorm, gradient accumulation with no_sync, and an evaluation whose sums are reduced."""

import contextlib
import os

import torch
import torch.distributed as dist
from digest import leave_digest
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    torch.use_deterministic_algorithms(True)
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(576, 4))
    model = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(model).cuda(), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    generator = torch.Generator("cuda").manual_seed(dist.get_rank())
    for _ in range(6):
        optimizer.zero_grad()
        for micro in range(2):
            x = torch.randn(16, 3, 8, 8, device="cuda", generator=generator)
            y = torch.randint(4, (16,), device="cuda", generator=generator)
            with model.no_sync() if micro == 0 else contextlib.nullcontext():
                (nn.functional.cross_entropy(model(x), y) / 2).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        x = torch.randn(32, 3, 8, 8, device="cuda", generator=generator)
        sums = torch.stack([model(x).sum(), torch.tensor(32.0, device="cuda")])
    dist.all_reduce(sums)
    print("mean output", round(float(sums[0] / sums[1]), 3))
    leave_digest(model.module)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
