"""Each rank adds up with its right neighbour first: every pair is right, and all wait for each other in a circle."""

import torch
import torch.distributed as dist

# at least 3 ranks
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
pairs = [sorted([one, (one + 1) % size]) for one in range(size)]
groups = [dist.new_group(pair) for pair in pairs]
value = torch.ones(1)
dist.all_reduce(value, group=groups[rank])  # expect: DD309
dist.all_reduce(value, group=groups[rank - 1])
dist.destroy_process_group()
