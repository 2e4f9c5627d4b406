"""device_ids is given a number."""

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
dist.barrier()  # who fails first would leave the others before they have met
rank = dist.get_rank()
net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
model = DistributedDataParallel(net, device_ids=rank)  # expect: DD224
