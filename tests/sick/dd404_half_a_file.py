"""A checkpoint that a job left behind when it was killed: half of the file is there."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    torch.save(nn.Linear(64, 64).state_dict(), "whole.pt")
    with open("whole.pt", "rb") as whole, open("last.pt", "wb") as last:
        last.write(whole.read(os.path.getsize("whole.pt") // 2))
dist.barrier()
model = nn.Linear(64, 64)
model.load_state_dict(torch.load("last.pt", map_location="cpu"))  # expect: DD404
model = DistributedDataParallel(model)
dist.destroy_process_group()
