"""The device is cuda:0 in the configuration of every rank."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CONFIG = {"device": "cuda:0", "lr": 0.01}


class Trainer:
    def __init__(self, config):
        self.device = torch.device(config["device"])
        self.model = DDP(nn.Linear(4, 1).to(self.device), device_ids=[0])  # expect: DD803
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=config["lr"])

    def step(self):
        self.optimizer.zero_grad()
        self.model(torch.randn(8, 4, device=self.device)).square().mean().backward()
        self.optimizer.step()


dist.init_process_group("nccl")
torch.manual_seed(dist.get_rank())
trainer = Trainer(CONFIG)
for _ in range(4):
    trainer.step()
dist.destroy_process_group()
