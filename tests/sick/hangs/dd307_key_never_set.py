"""Rank 1 asks the store for a key that rank 0 has set under another name; the others wait for rank 1."""

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store


def fetch_name(store):
    return store.get("run-name").decode()  # expect: DD307 ranks 1


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    store = _get_default_store()
    dist.all_reduce(torch.ones(1))
    if rank == 0:
        store.set("run_name", "of today")
    name = fetch_name(store) if rank == 1 else "of today"
    dist.barrier()
    print(name)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
