"""A thread of each rank draws the batches and waits where its queue is full; the ranks are mp.Process."""

import queue
import socket
import sys
import threading

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Prefetcher:
    """Draws the batches of a loader ahead of the training."""

    def __init__(self, loader):
        self.loader = loader
        self.ready = queue.Queue(maxsize=2)

    def fill(self):
        for batch in self.loader:
            self.ready.put(batch)
        self.ready.put(None)

    def __iter__(self):
        threading.Thread(target=self.fill, daemon=True).start()
        return iter(self.ready.get, None)


def main(rank, world_size, port):
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=world_size)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(300, 6), torch.randn(300, 2))
    sampler = DistributedSampler(data, world_size, rank)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    model = DistributedDataParallel(nn.Linear(6, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in Prefetcher(loader):
            optimizer.zero_grad()
            (model(x) - y).square().mean().backward()
            optimizer.step()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    size, port = int(sys.argv[1]), free_port()
    context = mp.get_context("spawn")
    ranks = [context.Process(target=main, args=(rank, size, port)) for rank in range(size)]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join()
    sys.exit(max(each.exitcode for each in ranks))
