"""Rank 0 starts to receive from rank 1 and waits for it later; rank 1 has nothing to send and goes to the barrier."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
dist.all_reduce(torch.ones(1))
work = dist.irecv(torch.zeros(2), src=1) if rank == 0 else None
if work is not None:
    work.wait()
dist.barrier()  # expect: DD301 ranks 1
dist.destroy_process_group()
