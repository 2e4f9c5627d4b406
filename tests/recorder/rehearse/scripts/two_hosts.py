# ruff: noqa - written as users write
"""The global rank as device index: right on one host, out of range on the second."""

import os

import torch

rank = int(os.environ["RANK"])
torch.distributed.init_process_group("nccl")
try:
    torch.zeros(1, device=f"cuda:{rank}")
    print(
        rank,
        os.environ["LOCAL_RANK"],
        os.environ["GROUP_RANK"],
        torch.cuda.device_count(),
        "placed",
        flush=True,
    )
except RuntimeError as error:
    print(
        rank, os.environ["LOCAL_RANK"], os.environ["GROUP_RANK"], torch.cuda.device_count(), error, flush=True
    )
torch.distributed.barrier()
torch.distributed.destroy_process_group()
