"""A schedule by a function, whose length counts the batches of the whole dataset."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

EPOCHS, BATCH = 2, 4


def warmed_up(optimizer, warm, total):
    def factor(now):
        return now / warm if now < warm else max(0.0, (total - now) / (total - warm))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)  # expect: DD219


dist.init_process_group("gloo")
torch.manual_seed(0)
dataset = TensorDataset(torch.randn(96, 4), torch.randn(96, 1))
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=BATCH, sampler=sampler)
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
updates = EPOCHS * (len(dataset) // BATCH)
scheduler = warmed_up(optimizer, 4, updates)
for epoch in range(EPOCHS):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        scheduler.step()
dist.destroy_process_group()
