"""Rank 0 alone writes a log and a line on the terminal now and then."""

import json
import logging

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
is_main = dist.get_rank() == 0
logger = logging.getLogger("train")
logger.setLevel(logging.INFO)
if is_main:
    logger.addHandler(logging.FileHandler("train.log"))
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(20):
    optimizer.zero_grad()
    loss = model(torch.randn(16, 8)).square().mean()
    loss.backward()
    optimizer.step()
    if is_main and step % 5 == 0:
        logger.info("step %d: loss %.4f", step, loss.item())
        print(f"step {step}")
        with open("metrics.jsonl", "a") as metrics:
            metrics.write(json.dumps({"step": step}) + "\n")
dist.destroy_process_group()
