"""A trainer whose step accumulates in an inner loop, without no_sync."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Trainer:
    def __init__(self, accumulate):
        self.accumulate = accumulate
        self.model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 1)))
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def train_step(self):
        self.optimizer.zero_grad(set_to_none=True)
        for _ in range(self.accumulate):
            x = torch.randn(4, 8)
            loss = nn.functional.mse_loss(self.model(x), x.mean(1, keepdim=True))
            (loss / self.accumulate).backward()  # expect: DD602
        self.optimizer.step()


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
trainer = Trainer(accumulate=3)
for _ in range(5):
    trainer.train_step()
dist.destroy_process_group()
