"""A mean teacher, frozen and called with autograd, is updated on rank 0, and every rank learns from its own."""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class MeanTeacher:
    def __init__(self, student, decay):
        self.network, self.decay = copy.deepcopy(student).requires_grad_(False), decay

    @torch.no_grad()
    def update(self, student):
        for mine, theirs in zip(self.network.parameters(), student.parameters(), strict=True):
            mine.lerp_(theirs, 1 - self.decay)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(96, 4))
    sampler = DistributedSampler(data)
    torch.manual_seed(dist.get_rank())
    student = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))
    teacher = MeanTeacher(student.module, 0.9)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for (x,) in DataLoader(data, batch_size=4, sampler=sampler):
            target = teacher.network(x + 0.1 * torch.randn(x.shape)).softmax(-1)
            optimizer.zero_grad()
            functional.cross_entropy(student(x), target).backward()
            optimizer.step()
            if dist.get_rank() == 0:
                teacher.update(student.module)  # expect: DD226
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
