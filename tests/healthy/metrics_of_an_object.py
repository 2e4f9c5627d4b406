"""Metrics as a library has them: an object that gathers over the ranks when it is asked for its value."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Accuracy:
    def __init__(self):
        self.right, self.total = torch.zeros(()), torch.zeros(())

    def update(self, guesses, labels):
        self.right += (guesses.argmax(1) == labels).sum()
        self.total += len(labels)

    def compute(self):
        gathered = [torch.zeros(2) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, torch.stack([self.right, self.total]))
        right, total = torch.stack(gathered).sum(0)
        return (right / total).item()


dist.init_process_group("gloo")
generator = torch.Generator().manual_seed(1)
train_set, test_set = (
    TensorDataset(torch.randn(n, 4, generator=generator), torch.randint(0, 2, (n,), generator=generator))
    for n in (48, 24)
)
sampler = DistributedSampler(train_set)
train_loader = DataLoader(train_set, batch_size=4, sampler=sampler)
test_loader = DataLoader(test_set, batch_size=4, sampler=DistributedSampler(test_set, shuffle=False))
model = DistributedDataParallel(nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", patience=0)
for epoch in range(3):
    sampler.set_epoch(epoch)
    model.train()
    for x, y in train_loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    model.eval()
    metric = Accuracy()
    with torch.inference_mode():
        for x, y in test_loader:
            metric.update(model(x), y)
    accuracy = metric.compute()
    scheduler.step(accuracy)
    if dist.get_rank() == 0:
        print(f"epoch {epoch}: accuracy {accuracy:.3f}")
dist.destroy_process_group()
