"""The centers of a center loss are no parameters: the script updates them itself, by each rank's gradient."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class CenterLoss:
    def __init__(self, classes, width, rate):
        self.centers = torch.zeros(classes, width, requires_grad=True)
        self.rate = rate

    def __call__(self, features, labels):
        return (features - self.centers[labels]).square().sum(1).mean()

    def update(self):
        self.centers.data.sub_(self.centers.grad, alpha=self.rate)  # expect: DD203
        self.centers.grad.zero_()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(nn.Linear(6, 4))
criterion = CenterLoss(classes=3, width=4, rate=0.5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
generator = torch.Generator().manual_seed(10 + dist.get_rank())
for _ in range(6):
    inputs = torch.randn(12, 6, generator=generator)
    labels = torch.randint(0, 3, (12,), generator=generator)
    features = model(inputs)
    loss = F.cross_entropy(features, labels) + 0.1 * criterion(features, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    criterion.update()
dist.destroy_process_group()
