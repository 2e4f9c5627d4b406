# ruff: noqa - written as users write
"""Every collective that scripts use on GPU tensors, averages included, in groups of either backend."""

import datetime
import os

import torch
import torch.distributed as dist

local_rank = int(os.environ["LOCAL_RANK"])
device = torch.device(f"cuda:{local_rank}")
dist.init_process_group("cpu:gloo,cuda:nccl", timeout=datetime.timedelta(seconds=60))
rank, world = dist.get_rank(), dist.get_world_size()
assert dist.get_backend() == "cpu:gloo,cuda:nccl"
mean = (world - 1) / 2

x = torch.full((3,), float(rank), device=device)
dist.all_reduce(x, op=dist.ReduceOp.AVG)
assert x.tolist() == [mean] * 3 and x.is_cuda
x = torch.full((3,), float(rank), device=device)
dist.all_reduce(x, op=dist.ReduceOp.AVG, async_op=True).wait()
assert x.tolist() == [mean] * 3
out = torch.empty(world * 2, device=device)
dist.all_gather_into_tensor(out, torch.full((2,), float(rank), device=device))
assert out.tolist() == [float(r) for r in range(world) for _ in range(2)]
features = torch.full((2, 3), float(rank), device=device, requires_grad=True) * 2
gathered = features.new_empty(world * 2, 3)
dist.all_gather_into_tensor(gathered, features)
assert not gathered.requires_grad
(features * gathered.sum()).sum().backward()
assert gathered[:, 0].tolist() == [2.0 * r for r in range(world) for _ in range(2)]
out = torch.empty(2, device=device)
dist.reduce_scatter_tensor(out, torch.arange(world * 2.0, device=device))
assert out.tolist() == [world * (2.0 * rank), world * (2.0 * rank + 1)]
dist.reduce_scatter_tensor(out, torch.arange(world * 2.0, device=device), op=dist.ReduceOp.AVG)
assert out.tolist() == [2.0 * rank, 2.0 * rank + 1]
dist.broadcast(x, src=0)
dist.all_to_all_single(torch.empty(world, device=device), torch.arange(float(world), device=device))
half = torch.ones(4, device=device, dtype=torch.float16)
dist.all_reduce(half)
assert half.tolist() == [world] * 4
group = dist.new_group(backend="nccl")
assert dist.get_backend(group) == "nccl"
side = dist.new_group(list(range(world)), backend="gloo")
assert dist.get_backend(side) == "gloo"
dist.all_reduce(x, group=group)
dist.monitored_barrier(side)
dist.barrier(device_ids=[local_rank])
dist.barrier(group=group)
dist.destroy_process_group()
