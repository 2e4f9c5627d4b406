"""The trainer reaches a method of the model through its wrapper."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(12, 4)
        self.decoder = nn.Linear(4, 12)

    def forward(self, x):
        return self.decoder(self.encoder(x).relu())

    def reconstruction_loss(self, x):
        return (self.decoder(self.encoder(x).relu()) - x).square().mean()


class Trainer:
    def __init__(self):
        self.model = DDP(Autoencoder())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)

    def step(self, batch):
        self.optimizer.zero_grad()
        loss = self.model.module.reconstruction_loss(batch)  # expect: DD201
        loss.backward()
        self.optimizer.step()
        return loss.item()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    trainer = Trainer()
    for _ in range(6):
        trainer.step(torch.randn(8, 12))
    dist.destroy_process_group()
