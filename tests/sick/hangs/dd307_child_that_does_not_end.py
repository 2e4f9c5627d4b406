"""The last thing of an epoch: rank 0 starts a program that reads its standard input, which nobody closes."""

import subprocess

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def publish(step):
    program = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    program.stdin.write(f"step {step}\n".encode())
    return program.wait()  # expect: DD307 ranks 0


def train():
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(8):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        optimizer.step()
        if step == 5 and dist.get_rank() == 0:
            publish(step)


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
train()
dist.barrier()
dist.destroy_process_group()
