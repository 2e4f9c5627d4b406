"""All ranks evaluate through the wrapper between two training steps, in eval mode, and leave autograd on."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Looks(nn.Module):
    """Adds what it finds in a table."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 1)
        self.register_buffer("table", torch.randn(200_000))

    def forward(self, x):
        return self.linear(x) + self.table[: len(x), None]


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(Looks())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(20):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    if step == 4:
        model.eval()
        for _ in range(2):
            print("loss", model(torch.randn(8, 4)).square().mean())
        model.train()
dist.destroy_process_group()
