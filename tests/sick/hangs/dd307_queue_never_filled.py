"""Rank 1 waits for a helper thread that has died; the others wait for rank 1 in backward."""

import queue
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def produce(batches, rank):
    for number in range(6):
        if rank == 1 and number == 4:
            return  # its part of the data ends here, and nobody is told
        batches.put(torch.randn(4, 8))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    batches = queue.Queue(maxsize=2)
    threading.Thread(target=produce, args=(batches, dist.get_rank()), daemon=True).start()
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(6):
        batch = batches.get()  # expect: DD307 ranks 1
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


main()
