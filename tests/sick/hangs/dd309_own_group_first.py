"""Every rank makes its own pair first, so the groups come in different orders."""

import torch
import torch.distributed as dist


def make_pairs(rank, size):
    pairs = [[other, (other + 1) % size] for other in range(size)]
    pairs.sort(key=lambda pair: rank not in pair)
    return [dist.new_group(sorted(pair)) for pair in pairs]  # expect: DD309 ranks 2-


def main():
    dist.init_process_group("gloo")
    groups = make_pairs(dist.get_rank(), dist.get_world_size())
    dist.all_reduce(torch.ones(1), group=groups[0])
    dist.destroy_process_group()


# at least 3 ranks
main()
