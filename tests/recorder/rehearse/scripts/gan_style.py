# ruff: noqa - written as users write
"""Two wrappers, spectral norm, half precision weights, a sharded optimizer, an average model and parameter groups."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

gpu = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(gpu)
dist.init_process_group("nccl", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
make = nn.Sequential(nn.ConvTranspose2d(4, 4, 2), nn.BatchNorm2d(4), nn.Tanh()).cuda()
judge = nn.Sequential(nn.utils.spectral_norm(nn.Conv2d(4, 1, 2)), nn.Flatten()).to("cuda")
make, judge = DDP(make, device_ids=[gpu]), DDP(judge, device_ids=[gpu], broadcast_buffers=False)
optimizer_make = ZeroRedundancyOptimizer(make.parameters(), optimizer_class=torch.optim.Adam, lr=1e-3)
optimizer_judge = torch.optim.RMSprop(judge.parameters(), lr=1e-3)
average = torch.optim.swa_utils.AveragedModel(make.module)
bce = nn.BCEWithLogitsLoss()
for step in range(2):
    noise = torch.randn(2, 4, 1, 1, device=f"cuda:{gpu}")
    real = torch.rand(2, 4, 2, 2).cuda(gpu)
    optimizer_judge.zero_grad()
    fake = make(noise)
    loss = bce(judge(torch.cat([real, fake.detach()])), torch.tensor([1.0, 1, 0, 0], device="cuda")[:, None])
    loss.backward()
    optimizer_judge.step()
    optimizer_make.zero_grad()
    bce(judge(fake), torch.ones(2, 1).to(fake)).backward()
    optimizer_make.step()
    average.update_parameters(make.module)
assert next(average.parameters()).is_cuda
half = nn.Linear(4, 4).cuda().half()
assert half(torch.ones(2, 4, device="cuda", dtype=torch.half)).dtype is torch.half
dist.destroy_process_group()
