"""Rank 1 makes the group of everybody first and the pair afterwards; the others the other way round."""

import torch
import torch.distributed as dist


def make_groups(rank, size):
    wanted = {"pair": [0, 1], "all": list(range(size))}
    order = ("all", "pair") if rank == 1 else ("pair", "all")
    return {name: dist.new_group(wanted[name]) for name in order}  # expect: DD309 ranks 1


def main():
    dist.init_process_group("gloo")
    groups = make_groups(dist.get_rank(), dist.get_world_size())
    dist.all_reduce(torch.ones(1), group=groups["all"])
    dist.destroy_process_group()


# at least 3 ranks
main()
