"""The wrap was written for a GPU; the model is on the CPU."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def build():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = nn.Linear(4, 4).to(device)
    return DDP(net, device_ids=[int(os.environ["LOCAL_RANK"])])  # expect: DD224


dist.init_process_group("gloo")
dist.barrier()  # who fails first would leave the others before they have met
build()
