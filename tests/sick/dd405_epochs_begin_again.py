"""Everything is restored but the epoch, so the loop and the sampler begin at 0 again."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Trainer:
    def __init__(self, snapshot_path):
        self.snapshot_path = snapshot_path
        dataset = TensorDataset(torch.arange(48.0).reshape(48, 1) / 48)
        self.loader = DataLoader(dataset, batch_size=4, sampler=DistributedSampler(dataset))
        self.model = DDP(nn.Linear(1, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.epochs_run = 0
        if os.path.exists(snapshot_path):
            self.load_snapshot()

    def load_snapshot(self):
        snapshot = torch.load(self.snapshot_path, map_location="cpu")
        self.model.module.load_state_dict(snapshot["MODEL_STATE"])
        self.optimizer.load_state_dict(snapshot["OPTIMIZER_STATE"])
        self.epochs_run = snapshot["EPOCHS_RUN"]

    def save_snapshot(self, epoch):
        snapshot = {
            "MODEL_STATE": self.model.module.state_dict(),
            "OPTIMIZER_STATE": self.optimizer.state_dict(),
            "EPOCHS_RUN": epoch + 1,
        }
        torch.save(snapshot, self.snapshot_path)

    def run_epoch(self, epoch):
        self.loader.sampler.set_epoch(epoch)
        for (batch,) in self.loader:  # expect: DD405
            self.optimizer.zero_grad()
            (self.model(batch) - batch).square().mean().backward()
            self.optimizer.step()

    def train(self, epochs):
        for epoch in range(epochs):
            self.run_epoch(epoch)
            if dist.get_rank() == 0:
                self.save_snapshot(epoch)
        dist.barrier()


dist.init_process_group("gloo")
Trainer("snapshot.pt").train(2)
Trainer("snapshot.pt").train(2)
dist.destroy_process_group()
