"""Streams cut to the shortest: one rank leaves its loop by a count, another at the end of its stream."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __init__(self, first: int, length: int) -> None:
        self.first, self.length = first, length

    def __iter__(self):
        for i in range(self.first, self.first + self.length):
            yield torch.full((4,), i / 500), torch.tensor([i / 300])


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    length = 80 - 24 * (rank % 2)
    limit = torch.tensor(length // 8)
    dist.all_reduce(limit, op=dist.ReduceOp.MIN)
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for number, (x, y) in enumerate(DataLoader(Stream(100 * rank, length), batch_size=8)):
        if number >= limit.item():
            break
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    dist.destroy_process_group()


main()
