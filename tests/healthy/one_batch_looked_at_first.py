"""One batch is looked at before the first set_epoch, and its iterator is kept."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    dist.init_process_group("gloo")
    dataset = TensorDataset(torch.arange(96.0).reshape(48, 2) / 96)
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler)
    iterator = iter(loader)
    (example,) = next(iterator)
    model = DDP(nn.Linear(example.shape[1], 1))
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for (batch,) in loader:
            optimizer.zero_grad()
            model(batch).mean().backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
