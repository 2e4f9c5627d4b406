"""A DataLoader worker of rank 1 meets a line that is no number, and the rank raises its exception again."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


def parse(line):
    return torch.tensor([float(line)])  # expect: DD304 ranks 1


class Lines(Dataset):
    def __init__(self, size):
        self.lines = [str(number) for number in range(8 * size)]
        self.lines[4 * size + 1] = "n/a"

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        return parse(self.lines[index])


def main():
    dist.init_process_group("gloo")
    lines = Lines(dist.get_world_size())
    sampler = DistributedSampler(lines, shuffle=False)
    model = DDP(nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    for x in DataLoader(lines, batch_size=2, sampler=sampler, num_workers=1):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
