"""The checkpoint holds the epoch that was done, and training goes on with it again."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Trainer:
    def __init__(self, path):
        self.path, self.epoch = path, 0
        torch.manual_seed(1)
        data = TensorDataset(torch.randn(48, 4), torch.randn(48, 1))
        self.sampler = DistributedSampler(data)
        self.loader = DataLoader(data, batch_size=4, sampler=self.sampler)
        self.model = DistributedDataParallel(nn.Linear(4, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        if os.path.exists(path):
            state = torch.load(path, map_location="cpu", weights_only=True)
            self.model.module.load_state_dict(state["model"])
            self.epoch = state["epoch"]

    def train(self, epochs):
        for epoch in range(self.epoch, epochs):
            self.sampler.set_epoch(epoch)
            for inputs, targets in self.loader:  # expect: DD405
                self.optimizer.zero_grad()
                nn.functional.mse_loss(self.model(inputs), targets).backward()
                self.optimizer.step()
            if dist.get_rank() == 0:
                state = {"model": self.model.module.state_dict(), "epoch": epoch}
                torch.save(state, self.path)
            dist.barrier()


dist.init_process_group("gloo")
Trainer("last.pt").train(2)
Trainer("last.pt").train(4)
dist.destroy_process_group()
