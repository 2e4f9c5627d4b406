"""The head is exchanged after the wrap; find_unused_parameters keeps DDP quiet."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Classifier(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.body = nn.Linear(8, 16)
        self.head = nn.Linear(16, classes)

    def forward(self, x):
        return self.head(self.body(x).relu())


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(Classifier(), find_unused_parameters=True)
model.module.head = nn.Linear(16, 3)  # expect: DD205
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(5):
    inputs, labels = torch.randn(8, 8), torch.randint(0, 3, (8,))
    loss = nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
