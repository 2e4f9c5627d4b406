"""The best weights are read back by every rank right after rank 0 has saved them."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Trainer:
    def __init__(self, folder):
        self.path = os.path.join(folder, "best.pt")
        self.model = DDP(nn.Linear(2, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        data = TensorDataset(torch.arange(48.0).reshape(24, 2) / 48)
        self.sampler = DistributedSampler(data)
        self.loader = DataLoader(data, batch_size=4, sampler=self.sampler)

    def train(self, epochs):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            for (batch,) in self.loader:
                self.optimizer.zero_grad()
                self.model(batch).mean().backward()
                self.optimizer.step()

    def save(self):
        if dist.get_rank() == 0:
            torch.save({"model": self.model.module.state_dict()}, self.path)

    def restore(self):
        state = torch.load(self.path, map_location="cpu")  # expect: DD401 ranks 1-
        self.model.module.load_state_dict(state["model"])


dist.init_process_group("gloo")
trainer = Trainer(".")
trainer.save()
dist.barrier()
trainer.train(2)
trainer.save()
trainer.restore()
dist.destroy_process_group()
