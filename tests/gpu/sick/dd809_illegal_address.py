"""A kernel writes far behind its tensor; NCCL's watchdog is the first to hear of it."""

import os
import time

import torch
import torch.distributed as dist
import triton
import triton.language as tl


@triton.jit
def scatter(target, offset):
    tl.store(target + offset, 1.0)


torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
tensor = torch.zeros(8, device="cuda")
dist.all_reduce(tensor)
torch.cuda.synchronize()
scatter[(1,)](tensor, 1 << 42)
dist.all_reduce(tensor)
time.sleep(20)
print(tensor.sum().item())
dist.destroy_process_group()
