"""Every rank streams files of its own, of different lengths: nobody knows how many batches there are."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

LINES = (28, 16, 20)


class Files(IterableDataset):
    def __init__(self, lines):
        self.lines = lines

    def __iter__(self):
        for number in range(self.lines):
            yield torch.tensor([float(number), float(number % 3)]) / self.lines


class Training:
    def __init__(self, lines):
        self.loader = DataLoader(Files(lines), batch_size=4)  # expect: DD106 ranks 1
        self.model = DistributedDataParallel(nn.Linear(2, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def epoch(self):
        for batch in self.loader:
            self.optimizer.zero_grad()
            self.model(batch).square().mean().backward()
            self.optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Training(LINES[dist.get_rank() % len(LINES)]).epoch()
    dist.destroy_process_group()
