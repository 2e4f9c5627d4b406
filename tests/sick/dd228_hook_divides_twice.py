"""A communication hook, a method, that divides before the sum and after it."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Averager:
    """Averages what DistributedDataParallel gives it."""

    def __init__(self):
        self.size = dist.get_world_size()

    def reduce(self, state, bucket):
        work = dist.all_reduce(bucket.buffer().div_(self.size), async_op=True)
        return work.get_future().then(self.finish)

    def finish(self, done):
        return done.value()[0].div_(self.size)


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(8, 4), gradient_as_bucket_view=True)
model.register_comm_hook(state=None, hook=Averager().reduce)  # expect: DD228
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    (model(torch.randn(8, 8)).square().mean() + model.module.bias.square().sum()).backward()
    optimizer.step()
dist.destroy_process_group()
