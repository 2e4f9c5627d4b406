"""set_epoch went into the block that prints: the other ranks repeat epoch 0, and share samples with rank 0."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def fit(model, loader, optimizer, epochs):
    for epoch in range(epochs):
        if dist.get_rank() == 0:
            print("epoch", epoch)
            loader.sampler.set_epoch(epoch)
        for (x,) in loader:  # expect: DD103 ranks 1-
            loss = (model(x) - x.mean(1, keepdim=True)).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    dataset = TensorDataset(torch.arange(144.0).view(48, 3) / 144)
    loader = DataLoader(dataset, batch_size=4, sampler=DistributedSampler(dataset))
    model = DistributedDataParallel(nn.Linear(3, 1))
    fit(model, loader, torch.optim.SGD(model.parameters(), lr=0.1), epochs=3)
    dist.destroy_process_group()
