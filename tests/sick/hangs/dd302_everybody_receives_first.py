"""A ring in which every rank receives from its left neighbour before it sends to its right one."""

import torch
import torch.distributed as dist


def shift(tensor):
    rank, size = dist.get_rank(), dist.get_world_size()
    received = torch.empty_like(tensor)
    dist.recv(received, src=(rank - 1) % size)  # expect: DD302
    dist.send(tensor, dst=(rank + 1) % size)
    return received


dist.init_process_group("gloo")
part = torch.full((4,), float(dist.get_rank()))
dist.barrier()
for _ in range(dist.get_world_size()):
    part = shift(part)
dist.destroy_process_group()
