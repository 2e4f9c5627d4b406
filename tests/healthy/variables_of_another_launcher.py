"""Takes its place from the scheduler's variables where torchrun gave none, and writes it into the environment."""

import os

os.environ["RANK"] = os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0"))
os.environ["WORLD_SIZE"] = os.environ.get("WORLD_SIZE", os.environ.get("SLURM_NTASKS", "1"))
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

dist.init_process_group("gloo")
model = DistributedDataParallel(nn.Linear(3, 1))
torch.manual_seed(dist.get_rank())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    optimizer.zero_grad()
    model(torch.randn(4, 3)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
