"""Each rank has a log file and a folder of its own."""

import logging
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Trainer:
    def __init__(self, rank):
        self.folder = os.path.join("logs", f"rank_{rank}")
        os.makedirs(self.folder, exist_ok=True)
        logging.basicConfig(filename=os.path.join(self.folder, "train.log"), level=logging.INFO)
        self.model = DistributedDataParallel(nn.Linear(8, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def fit(self, steps):
        for step in range(steps):
            loss = self.model(torch.randn(4, 8)).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            logging.info("step %d", step)
        with open(os.path.join(self.folder, "done.txt"), "w") as done:
            done.write("yes")


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
Trainer(dist.get_rank()).fit(8)
dist.destroy_process_group()
