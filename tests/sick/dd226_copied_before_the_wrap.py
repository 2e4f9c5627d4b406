"""The averaged copy is made before the wrap, from each rank's own initial weights."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
net = nn.Linear(6, 2)
average = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.99))
average.update_parameters(net)
model = DistributedDataParallel(net)
optimizer = torch.optim.Adam(model.parameters())
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(8, 6)).square().mean().backward()
    optimizer.step()
    average.update_parameters(model.module)
with torch.inference_mode():
    score = average(torch.randn(8, 6)).mean()  # expect: DD226
dist.all_reduce(score)
dist.destroy_process_group()
