"""A collective behind a kernel that takes two minutes: longer than the group's timeout."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=int(os.environ.get("SECONDS_TO_WAIT", "600"))))
tensor = torch.ones(8, device="cuda")
for _ in range(3):
    dist.all_reduce(tensor)
torch.cuda.synchronize()
torch.cuda._sleep(240 * 10**9)
dist.all_reduce(tensor)
print(tensor.sum().item())  # waits here
dist.destroy_process_group()
