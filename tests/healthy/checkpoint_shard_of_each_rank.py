"""Each rank writes and reads a file of its own; rank 0 also writes one that all read after a barrier."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Run:
    def __init__(self):
        self.rank = dist.get_rank()
        self.dataset = TensorDataset(torch.arange(48.0).reshape(48, 1) / 48)
        self.sampler = DistributedSampler(self.dataset)
        self.loader = DataLoader(self.dataset, batch_size=4, sampler=self.sampler)
        self.model = DistributedDataParallel(nn.Linear(1, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1)
        self.epoch = 0

    def train(self, epochs):
        for self.epoch in range(self.epoch, self.epoch + epochs):
            self.sampler.set_epoch(self.epoch)
            for (batch,) in self.loader:
                self.optimizer.zero_grad()
                self.model(batch).square().mean().backward()
                self.optimizer.step()
            self.scheduler.step()

    def save(self):
        torch.save({"rng": torch.get_rng_state()}, f"rng{self.rank}.pt")
        if self.rank == 0:
            parts = {"model": self.model.module, "optimizer": self.optimizer, "scheduler": self.scheduler}
            torch.save(
                {name: part.state_dict() for name, part in parts.items()} | {"epoch": self.epoch}, "last.pt"
            )
        dist.barrier()

    def resume(self):
        state = torch.load("last.pt", map_location="cpu")
        self.model.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.epoch = state["epoch"] + 1
        torch.set_rng_state(torch.load(f"rng{self.rank}.pt")["rng"])


dist.init_process_group("gloo")
first = Run()
first.train(2)
first.save()
second = Run()
second.resume()
second.train(2)
dist.barrier()
dist.destroy_process_group()
