"""Training goes on from a checkpoint of several files, of which that of the optimizer is not loaded."""

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
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        if os.path.exists(f"{path}/weights.pt"):
            self.model.module.load_state_dict(torch.load(f"{path}/weights.pt"))  # expect: DD405
            self.epoch = torch.load(f"{path}/progress.pt")["epoch"] + 1

    def train(self, epochs):
        for epoch in range(self.epoch, epochs):
            self.sampler.set_epoch(epoch)
            for inputs, targets in self.loader:
                self.optimizer.zero_grad()
                nn.functional.mse_loss(self.model(inputs), targets).backward()
                self.optimizer.step()
            if dist.get_rank() == 0:
                os.makedirs(self.path, exist_ok=True)
                torch.save(self.model.module.state_dict(), f"{self.path}/weights.pt")
                torch.save(self.optimizer.state_dict(), f"{self.path}/optimizer.pt")
                torch.save({"epoch": epoch}, f"{self.path}/progress.pt")
            dist.barrier()


dist.init_process_group("gloo")
Trainer("last").train(2)
Trainer("last").train(4)
dist.destroy_process_group()
