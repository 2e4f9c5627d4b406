"""The number of classes is counted in each rank's own shard."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
labels = torch.arange(10 + (dist.get_rank() == 1))
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, len(labels.unique())))
model = DistributedDataParallel(model)  # expect: DD214 ranks 1
