"""Rank 0 alone evaluates the bare module, and then all go on."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, net):
        self.model = DDP(net)
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def train(self, steps):
        self.model.train()
        for _ in range(steps):
            self.optimizer.zero_grad()
            self.model(torch.randn(8, 4)).square().mean().backward()
            self.optimizer.step()

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        loss = self.model.module(torch.ones(4, 4)).square().mean()
        print(f"held-out loss {loss.item():.3f}")


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
trainer = Trainer(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 1)))
for _ in range(2):
    trainer.train(3)
    if dist.get_rank() == 0:
        trainer.evaluate()
    dist.barrier()
dist.destroy_process_group()
