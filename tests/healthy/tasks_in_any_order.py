"""Several tasks, each with a loader of its own made on one line, that each rank takes in an order of its own."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

TASKS = {"parse": 120, "rank": 300, "tag": 64}


class Tasks(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.heads = nn.ModuleDict({name: nn.Linear(4, 1) for name in TASKS})

    def forward(self, x, task):
        every = sum(parameter.sum() for parameter in self.heads.parameters())
        return self.heads[task](self.body(x)) + 0 * every


dist.init_process_group("gloo")
order = random.Random(dist.get_rank())
torch.manual_seed(0)
data = {name: TensorDataset(torch.randn(size, 4), torch.randn(size, 1)) for name, size in TASKS.items()}
loaders = {name: DataLoader(own, batch_size=4, sampler=DistributedSampler(own)) for name, own in data.items()}
epochs = dict.fromkeys(TASKS, 0)
drawing = {}
model = DistributedDataParallel(Tasks())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def begin(task):
    loaders[task].sampler.set_epoch(epochs[task])
    epochs[task] += 1
    drawing[task] = iter(loaders[task])


def learn(task, x, y):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x, task), y).backward()
    optimizer.step()


for _ in range(50):
    task = order.choice(list(TASKS))
    if task not in drawing:
        begin(task)
    batch = next(drawing[task], None)
    if batch is None:
        begin(task)
        batch = next(drawing[task])
    learn(task, *batch)
dist.destroy_process_group()
