"""A kernel that takes two minutes, and a rank that waits for it."""

import os

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
tensor = torch.ones(8, device="cuda")
dist.all_reduce(tensor)
torch.cuda._sleep(240 * 10**9)
torch.cuda.synchronize()  # waits here
dist.destroy_process_group()
