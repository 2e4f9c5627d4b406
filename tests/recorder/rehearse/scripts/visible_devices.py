# ruff: noqa - written as users write
"""Chooses the visible GPUs of a larger machine, after torch was imported."""

import os

import torch
import torch.distributed as dist

os.environ["CUDA_VISIBLE_DEVICES"] = "0,1,2,3"
torch.manual_seed(7)
torch.cuda.manual_seed_all(7)
assert torch.cuda.device_count() == 4
assert len(torch.cuda.get_rng_state_all()) == 4

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
x = torch.rand(2, device="cuda")
y = x.clone()
dist.all_reduce(y, op=dist.ReduceOp.AVG)
assert torch.allclose(x, y), "seeded alike"
dist.destroy_process_group()
