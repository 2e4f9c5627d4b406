"""Only rank 0 prints the metric, and only it computes it, which gathers from all ranks."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Accuracy:
    def __init__(self):
        self.right, self.all = 0, 0

    def update(self, scores, labels):
        self.right += int((scores.argmax(1) == labels).sum())
        self.all += len(labels)

    def compute(self):
        counts = [None] * dist.get_world_size()
        dist.all_gather_object(counts, (self.right, self.all))  # expect: DD303 ranks 0
        return sum(right for right, _ in counts) / sum(count for _, count in counts)


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(4, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
metric = Accuracy()
for step in range(8):
    x, y = torch.randn(8, 4), torch.randint(3, (8,))
    scores = model(x)
    metric.update(scores, y)
    optimizer.zero_grad()
    nn.functional.cross_entropy(scores, y).backward()
    optimizer.step()
    if step == 4 and dist.get_rank() == 0:
        print("accuracy", metric.compute())
dist.destroy_process_group()
