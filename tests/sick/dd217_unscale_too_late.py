"""unscale_ comes after the clipping."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils import clip_grad_norm_


class Trainer:
    def __init__(self, model):
        self.model = DDP(model)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.scaler = torch.amp.GradScaler("cpu")

    def step(self, batch):
        self.optimizer.zero_grad()
        loss = self.model(batch).square().mean()
        self.scaler.scale(loss).backward()
        clip_grad_norm_(self.model.parameters(), max_norm=0.5)  # expect: DD217
        self.scaler.unscale_(self.optimizer)
        self.scaler.step(self.optimizer)
        self.scaler.update()


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
trainer = Trainer(nn.Linear(5, 5))
for _ in range(4):
    trainer.step(torch.randn(8, 5))
dist.destroy_process_group()
