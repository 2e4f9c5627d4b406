"""A loss with weights of its own is trained beside the wrapped model."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class CenterLoss(nn.Module):
    def __init__(self, classes, features):
        super().__init__()
        self.centers = nn.Parameter(torch.zeros(classes, features))

    def forward(self, features, labels):
        return (features - self.centers[labels]).square().sum(dim=1).mean()


dist.init_process_group("gloo")
torch.manual_seed(1)
model = DistributedDataParallel(nn.Linear(8, 4))
criterion = CenterLoss(3, 4)
optimizer = torch.optim.SGD([*model.parameters(), *criterion.parameters()], lr=0.05)  # expect: DD203
torch.manual_seed(dist.get_rank())
for _ in range(6):
    inputs, labels = torch.randn(12, 8), torch.randint(0, 3, (12,))
    optimizer.zero_grad()
    criterion(model(inputs), labels).backward()
    optimizer.step()
dist.destroy_process_group()
