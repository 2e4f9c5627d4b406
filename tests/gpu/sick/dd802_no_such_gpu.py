"""The device is counted from 1."""

import os

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) + torch.cuda.device_count())  # expect: DD802
dist.init_process_group("nccl")
dist.destroy_process_group()
