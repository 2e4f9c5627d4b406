"""How fast each rank receives from its neighbour in a ring: a collective is as slow as its slowest rank."""

import time
from typing import Any

import torch
import torch.distributed as dist

from ddpdoctor.group.context import Context
from ddpdoctor.group.measure.collectives import synchronize
from ddpdoctor.group.trials import ring_neighbours, start_exchange
from ddpdoctor.text import size

SECONDS = 10.0
LENGTH = 256 * 1024
REPETITIONS = 6


def measure(context: Context) -> dict[str, Any]:
    """Seconds of the fastest of a few exchanges: what else the machine does slows single ones, not all."""
    sender, receiver = ring_neighbours(context.rank, context.world_size)
    value = {"sender": sender, "bytes": LENGTH, "seconds": None}
    if context.world_size == 1:
        return value
    return {**value, "seconds": min(_exchange(context, sender, receiver) for _ in range(REPETITIONS))}


def _exchange(context: Context, sender: int, receiver: int) -> float:
    x = torch.zeros(LENGTH, dtype=torch.uint8, device=context.device)
    got = torch.empty_like(x)
    context.step("barrier before send/recv")
    dist.barrier()  # else a late rank makes its successor late in the next exchange, and so on round the ring
    synchronize(context.device)
    context.step(f"send/recv uint8 {size(LENGTH)}")
    start = time.perf_counter()
    receiving, *sending = start_exchange(x, receiver, got, sender)
    receiving.wait()
    synchronize(context.device)
    seconds = time.perf_counter() - start
    for work in sending:  # ends when the receiver is ready: not counted, or its lateness would be this rank's
        work.wait()
    return seconds
