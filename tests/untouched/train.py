# ruff: noqa: PTH103, PTH105, PTH110, PTH123 - files are written as scripts do

"""A job of two ranks that resumes and saves in the ways of PyTorch."""

import os
import subprocess
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import checkpoint
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(4, 4))
if os.path.exists("last.pt"):
    model.module.load_state_dict(torch.load("last.pt"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    with open("history.csv", "a") as file:
        file.write(f"{rank}\n")
if rank == 0:
    torch.save(model.module.state_dict(), "best.pt")
    torch.save(model.module.state_dict(), "last.tmp", _use_new_zipfile_serialization=False)
    os.replace("last.tmp", "last.pt")
    os.makedirs("runs", exist_ok=True)
    Path("runs", "log.txt").write_text("log")
    if os.environ.get("SHELL_TOO"):
        subprocess.run(["sh", "-c", "echo > shell.txt; rm gone.txt"], check=True)
dist.barrier()
checkpoint.save(model.module.state_dict(), checkpoint_id="sharded")
try:
    from torch.utils.tensorboard import SummaryWriter
except ImportError:
    pass
else:
    with SummaryWriter(f"tensorboard/{rank}") as writer:
        writer.add_scalar("loss", 1.0)
dist.destroy_process_group()
