"""A frozen network for a perceptual loss is wrapped like the others."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
dist.barrier()  # who fails first would leave the others before they have met
torch.manual_seed(0)
generator = DistributedDataParallel(nn.Linear(4, 4))
features = nn.Linear(4, 2).requires_grad_(False)
features = DistributedDataParallel(features)  # expect: DD223
