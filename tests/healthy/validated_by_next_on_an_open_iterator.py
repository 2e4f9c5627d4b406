"""Every rank takes validation batches by next() from an iterator that stays open while training goes on."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
generator = torch.Generator().manual_seed(0)
dataset = TensorDataset(torch.randn(120, 4, generator=generator))
held_out = TensorDataset(torch.randn(64, 4, generator=generator))
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=4, sampler=sampler)
validation = iter(DataLoader(held_out, batch_size=4))
model = DistributedDataParallel(nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for step, (x,) in enumerate(loader):
        optimizer.zero_grad()
        (model(x) - x).square().mean().backward()
        optimizer.step()
        if step % 4 == 3:
            (x,) = next(validation)
            model.eval()
            with torch.no_grad():
                loss = (model(x) - x).square().mean()
            dist.all_reduce(loss)
            model.train()
            if dist.get_rank() == 0:
                print(f"loss {loss.item() / dist.get_world_size():.4f}")
dist.destroy_process_group()
